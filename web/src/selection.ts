// The selection that all views share: a single immutable Choice behind a signal, always clamped to what the recording has. It can
// be written to and read from the hash of the address.
import { computed, signal, type ReadonlySignal } from "@preact/signals";
import type { AttentionInfo, Manifest } from "./types";

export interface Choice {
  recording: string;
  view: string;
  /** "" until a recording is open. */
  attention: string;
  head: number;
  /** Tokens, also while words are merged. */
  query: number;
  key: number;
  /** Index into manifest.steps; 0 where there are none. */
  step: number;
  /** More queries, whose rows are added to the first. */
  pinned: readonly number[];
  /** Pieces of words are merged. */
  merge: boolean;
  /** Special tokens are hidden, and rows renormalised after that. */
  hide: boolean;
  renormalise: boolean;
  /** Colours show the square root of a weight. */
  root: boolean;
  /** Look draws a heat map even where ribbons are possible. */
  map: boolean;
  /** What Compare shows beside this selection, in the notation of comparison-side.ts; "" for nothing. */
  partner: string;
  /** What Change changes in the model, as JSON (see change.ts); "" for nothing. */
  changes: string;
}

export const nothing: Choice = {
  recording: "",
  view: "look",
  attention: "",
  head: 0,
  query: 0,
  key: 0,
  step: 0,
  pinned: [],
  merge: false,
  hide: false,
  renormalise: false,
  root: false,
  map: false,
  partner: "",
  changes: "",
};

const within = (value: number, size: number): number => Math.max(0, Math.min(Math.trunc(value) || 0, size - 1));

/** The nearest choice that exists; without a known attention, the manifest says where to begin. */
export function clamp(choice: Choice, manifest: Manifest): Choice {
  const steps = Math.max(1, manifest.steps.length);
  const known = manifest.attentions.find((each) => each.id === choice.attention);
  const attention = known ?? manifest.attentions.find((each) => each.id === manifest.begin?.attention) ?? manifest.attentions[0];
  if (!attention) return { ...choice, attention: "", head: 0, query: 0, key: 0, step: within(choice.step, steps), pinned: [] };
  const begun = known ? choice : { ...choice, ...(manifest.begin ?? { head: 0, query: 0, key: 0 }), ...fresh(attention, steps) };
  return {
    ...begun,
    attention: attention.id,
    head: within(begun.head, attention.heads),
    query: within(begun.query, attention.rows),
    key: within(begun.key, attention.columns),
    step: within(begun.step, steps),
    pinned: [...new Set(begun.pinned)].filter((query) => query >= 0 && query < attention.rows),
  };
}

/** Where a recording begins: the last step, without pins; with square roots for a long input, whose weights are small. */
function fresh(attention: AttentionInfo, steps: number): Pick<Choice, "step" | "pinned" | "root"> {
  return { step: steps - 1, pinned: [], root: attention.columns > 64 };
}

const FLAGS = ["merge", "hide", "renormalise", "root", "map"] as const;

/** `recording=ID&view=look&attention=cross.2&head=1&query=3&key=5&step=0`; heads from 1, the rest from 0. */
export function write(choice: Choice): string {
  const fields = new URLSearchParams({ recording: choice.recording, view: choice.view });
  if (choice.attention) {
    fields.set("attention", choice.attention);
    fields.set("head", String(choice.head + 1));
    fields.set("query", String(choice.query));
    fields.set("key", String(choice.key));
  }
  fields.set("step", String(choice.step));
  if (choice.pinned.length) fields.set("pinned", choice.pinned.join("."));
  for (const flag of FLAGS) if (choice[flag]) fields.set(flag, "1");
  if (choice.partner) fields.set("with", choice.partner);
  if (choice.changes) fields.set("changes", choice.changes);
  return fields.toString();
}

/** What an address selects; fields that are missing or invalid are left out. */
export function read(hash: string): Partial<Choice> {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const choice: Partial<Choice> = {};
  for (const name of ["recording", "view", "attention"] as const) {
    const value = fields.get(name);
    if (value) choice[name] = value;
  }
  for (const name of ["head", "query", "key", "step"] as const) {
    const value = fields.get(name);
    if (value !== null && /^\d{1,9}$/.test(value)) choice[name] = Number(value) - (name === "head" ? 1 : 0);
  }
  if (fields.size === 0) return choice;
  choice.pinned = (fields.get("pinned") ?? "").split(".").filter((text) => /^\d{1,9}$/.test(text)).map(Number);
  for (const flag of FLAGS) choice[flag] = fields.get(flag) === "1";
  choice.partner = fields.get("with") ?? "";
  choice.changes = fields.get("changes") ?? "";
  return choice;
}

/** The signals are read by views; only `choose` and `settle` change the selection. */
export class Selection {
  private readonly state = signal<Choice>(nothing);
  private manifest: Manifest | null = null;
  readonly choice: ReadonlySignal<Choice> = this.state;
  readonly recording = computed(() => this.state.value.recording);
  readonly view = computed(() => this.state.value.view);
  readonly attention = computed(() => this.state.value.attention);
  readonly head = computed(() => this.state.value.head);
  readonly query = computed(() => this.state.value.query);
  readonly key = computed(() => this.state.value.key);
  readonly step = computed(() => this.state.value.step);
  readonly pinned = computed(() => this.state.value.pinned);
  readonly merge = computed(() => this.state.value.merge);
  readonly hide = computed(() => this.state.value.hide);
  readonly renormalise = computed(() => this.state.value.renormalise);
  readonly root = computed(() => this.state.value.root);
  readonly map = computed(() => this.state.value.map);
  readonly partner = computed(() => this.state.value.partner);
  readonly changes = computed(() => this.state.value.changes);

  /** Change the selection. Another recording begins where its manifest says, unless the change names an attention. */
  choose(change: Partial<Choice>): void {
    const before = this.state.peek();
    let after = { ...before, ...change };
    if (after.recording !== before.recording) {
      this.manifest = null;
      if (change.attention === undefined) after = { ...after, attention: "" };
      if (change.changes === undefined) after = { ...after, changes: "" };
    }
    this.state.value = this.manifest ? clamp(after, this.manifest) : after;
  }

  /** Clamp to this recording from now on. */
  settle(manifest: Manifest): void {
    this.manifest = manifest;
    this.state.value = clamp(this.state.peek(), manifest);
  }
}
