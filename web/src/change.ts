// Changes of a model: the arguments of regard.intervene, as the address keeps them and as people read them.
import { headName, kindTitles } from "./sentence";
import type { Manifest } from "./types";
import { namesOf } from "./word-groups";

/** Where a vector comes from: a place and a token, of this text or of another one. */
export interface Origin {
  place: string;
  position: number;
  head?: number;
  text?: string;
}

/** Heads and positions are counted from 0; without them, all are changed. */
export interface Change {
  place: string;
  heads?: number[];
  positions?: number[];
  /** "zero", "uniform", "previous", "first", or the position of a key. */
  attention?: string | number;
  /** Query, key, value. */
  weight?: [number, number, number];
  vector?: Origin;
  /** It is in the list, but switched off. */
  off?: boolean;
}

const isText = (value: unknown) => typeof value === "string";
const isPlace = (value: unknown) => typeof value === "number" && Number.isInteger(value) && value >= 0;
const isNumbers = (value: unknown) => Array.isArray(value) && value.every((each) => typeof each === "number");

/** What each field may hold; one that is missing is left out. */
const FIELDS: Record<keyof Change, (value: unknown) => boolean> = {
  place: isText,
  heads: isNumbers,
  positions: isNumbers,
  attention: (value) => isText(value) || isPlace(value),
  weight: (value) => isNumbers(value) && (value as number[]).length === 3,
  vector: isOrigin,
  off: (value) => value === true,
};
const ORIGIN: Record<keyof Origin, (value: unknown) => boolean> = { place: isText, position: isPlace, head: isPlace, text: isText };

/** The changes in an address; what is not a list of changes is left out. */
export function readChanges(text: string): Change[] {
  try {
    const found: unknown = JSON.parse(text || "[]");
    return Array.isArray(found) ? found.filter(isChange) : [];
  } catch {
    return [];
  }
}

function isChange(value: unknown): value is Change {
  return fits(value, FIELDS, ["place"]);
}

function isOrigin(value: unknown): boolean {
  return fits(value, ORIGIN, ["place", "position"]);
}

/** Whether a value is an object with the needed fields, and no field is unknown or of another kind. */
function fits(value: unknown, fields: Record<string, (value: unknown) => boolean>, needed: string[]): boolean {
  if (typeof value !== "object" || value === null || !needed.every((field) => field in value)) return false;
  return Object.entries(value).every(([field, held]) => Object.hasOwn(fields, field) && fields[field](held));
}

export function writeChanges(changes: readonly Change[]): string {
  return changes.length ? JSON.stringify(changes) : "";
}

/** The changes that count, as the server takes them. */
export function active(changes: readonly Change[]): Change[] {
  return changes.filter((change) => !change.off).map(({ off: _, ...change }) => change);
}

/** The position of a token. The agents of a scene share the position of a step, so a change of it is one of all agents. */
export function positionOf(sequence: string, token: number, { sequences }: Manifest): number {
  return sequence === "steps" ? (sequences[sequence][token]?.id ?? 1) - 1 : token;
}

/** The name of a position: its token, or the step. */
export function positionName(sequence: string, position: number, { sequences }: Manifest): string {
  return sequence === "steps" ? `step ${position + 1}` : (namesOf(sequences[sequence] ?? [])[position] ?? `#${position}`);
}

const PATTERNS: Record<string, string> = {
  zero: "off",
  uniform: "looks evenly",
  previous: "looks at the previous token",
  first: "looks at the first token",
};

/** "Cross L2.H3: off", "tokens after layer 2, river: from tokens after layer 1, bank", "Cross L2.H3, river: from the output of Cross L1.H1, bank". */
export function describe(change: Change, manifest: Manifest): string {
  const attention = manifest.attentions.find((each) => each.id === change.place);
  if (!attention) return `${placeName(change.place, manifest)}${tokensOf(change.place, change.positions, manifest)}: ${originText(change.vector, manifest)}`;
  const heads = change.heads?.length ? change.heads.map((head) => headName(attention, head)).join(", ") : `L${attention.layer}, all heads`;
  const name = `${kindTitles[attention.kind]} ${heads}`;
  const word = (sequence: string, at: number) => positionName(sequence, at, manifest);
  if (change.weight) {
    const [query, key, value] = change.weight;
    return `${name}: ${word(attention.queries, query)} → ${word(attention.keys, key)} is ${value}`;
  }
  const rows = change.positions?.length ? `, ${change.positions.map((at) => word(attention.queries, at)).join(", ")}` : "";
  if (change.vector) return `${name}${rows}: ${originText(change.vector, manifest)}`;
  const what = typeof change.attention === "number" ? `looks at ${word(attention.keys, change.attention)}` : (PATTERNS[change.attention ?? ""] ?? "changed");
  return `${name}${rows}: ${what}`;
}

/** "tokens.2" as "tokens after layer 2"; "cross.2" as "the output of Cross L2", or of one of its heads. */
export function placeName(place: string, { attentions }: Manifest, head?: number): string {
  const attention = attentions.find((each) => each.id === place);
  if (attention) return `the output of ${kindTitles[attention.kind]} ${head === undefined ? `L${attention.layer}` : headName(attention, head)}`;
  const [sequence, layer] = place.split(".");
  return layer === "0" ? `${sequence} in the embedding` : `${sequence} after layer ${layer}`;
}

/** The sequence whose tokens have a vector at a place. */
export function placeSequence(place: string, { attentions }: Manifest): string {
  return attentions.find((each) => each.id === place)?.queries ?? place.split(".")[0];
}

function tokensOf(place: string, positions: readonly number[] | undefined, manifest: Manifest): string {
  return positions?.length ? `, ${positions.map((at) => positionName(placeSequence(place, manifest), at, manifest)).join(", ")}` : "";
}

function originText(origin: Origin | undefined, manifest: Manifest): string {
  if (!origin) return "changed";
  const name = placeName(origin.place, manifest, origin.head);
  if (origin.text !== undefined) return `from “${origin.text}”, ${name}, token ${origin.position + 1}`;
  const names = namesOf(manifest.sequences[placeSequence(origin.place, manifest)] ?? []);
  return `from ${name}, ${names[origin.position] ?? `#${origin.position}`}`;
}

/** Which words of a text are not in another: those outside a longest common subsequence. */
export function newWords(before: readonly string[], after: readonly string[]): boolean[] {
  const lengths = Array.from({ length: before.length + 1 }, () => new Uint16Array(after.length + 1));
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--) {
      lengths[i][j] = before[i] === after[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const found = after.map(() => true);
  for (let i = 0, j = 0; i < before.length && j < after.length; ) {
    if (before[i] === after[j]) {
      found[j] = false;
      i++;
      j++;
    } else if (lengths[i + 1][j] >= lengths[i][j + 1]) i++;
    else j++;
  }
  return found;
}
