// What a row or column of a picture is: a token, a word of several tokens, or a block of a long input. Merging sums over the
// pieces of a key and averages over the pieces of a query, so that a row still sums to 1.
import type { Manifest, Token } from "./types";

export interface Group {
  text: string;
  /** Its text; if another group has the same, also its position: the₄, the₉. */
  name: string;
  /** Indices into the sequence. */
  tokens: number[];
  special: boolean;
}

/** A token in readable form: without the marks of tokenizers, with visible white space. */
export function readable(text: string): string {
  const bare = text.replace(/^##(?=.)|^[▁Ġ](?=.)|@@$|<\/w>$/gu, "");
  if (bare === "▁" || bare === "Ġ" || (bare !== "" && bare.trim() === "")) return bare.replace(/\n/g, "⏎").replace(/[^⏎]/g, "␣");
  return bare === "" ? "∅" : bare.trim().replace(/\n/g, "⏎");
}

/** A list of tokens in readable form; those that would look alike keep their blanks and marks: "ouv" and "␣ouv". */
export function distinct(texts: readonly string[]): string[] {
  const shown = texts.map(readable);
  const alike = new Set(shown.filter((text, at) => shown.indexOf(text) !== at));
  return shown.map((text, at) => (alike.has(text) ? texts[at].replace(/^[▁Ġ](?=.)| /gu, "␣").replace(/\n/g, "⏎") : text));
}

/** Texts, each with its position, counted from 1, if another one is the same: the₄, the₉. Otherwise nothing tells them apart. */
export function numbered(texts: readonly string[], positions: readonly number[] = [...texts.keys()]): string[] {
  const counts = new Map<string, number>();
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1);
  return texts.map((text, at) => (counts.get(text) === 1 ? text : `${text}${subscript(positions[at] + 1)}`));
}

/** The names of tokens. */
export function namesOf(tokens: readonly { text: string }[]): string[] {
  return numbered(tokens.map((token) => readable(token.text)));
}

function subscript(number: number): string {
  return String(number).replace(/\d/g, (digit) => String.fromCodePoint(0x2080 + Number(digit)));
}

/** Groups with their names. */
function named(groups: Omit<Group, "name">[]): Group[] {
  const names = numbered(
    groups.map((group) => group.text),
    groups.map((group) => group.tokens[0]),
  );
  return groups.map((group, at) => ({ ...group, name: names[at] }));
}

/** What the signs in a list of readable tokens mean, as the end of its caption. */
export function explained(shown: readonly string[]): string {
  const signs = shown.some((text) => text.includes("␣")) ? ["␣ is a blank, where a word begins"] : [];
  return [...signs, ...bytesOf(shown)].map((sign) => `; ${sign}`).join("");
}

/** What `\xd7` means, if a token is such a byte. */
function bytesOf(texts: readonly string[]): string[] {
  const [found] = texts.flatMap((text) => /\\x[0-9a-f]{2}/.exec(text) ?? []);
  return found ? [`${found} is a byte in hexadecimal, a part of a character in UTF-8`] : [];
}

/** How the tokens of a recording are named, if that is not plain text, as sentences for the reader. */
export function notation({ sequences, image }: Pick<Manifest, "sequences" | "image">): string[] {
  const text = (name: string, at: number) => sequences[name]?.[at]?.text ?? "";
  const patch = /^(\d+),(\d+)$/.exec(text("patches", (image?.first ?? 0) + 1));
  const step = /^(.+)@(\d+)$/u.exec(text("steps", 1));
  return [
    ...(patch ? [`${patch[0]} is the patch in row ${patch[1]}, column ${patch[2]}`] : []),
    ...(step ? [`${step[0]} is agent ${step[1]} at step ${step[2]}`] : []),
    ...bytesOf(Object.values(sequences).flatMap((tokens) => tokens.map((token) => token.text))),
  ].map((sentence) => `${sentence}.`);
}

/** The text of a word and a further piece of it; the steps of an agent, a@1 and a@2, are the agent: a. */
function joined(word: string, piece: string): string {
  const agent = /^(.+)@\d+$/u.exec(piece)?.[1];
  return agent !== undefined && (word === agent || /^(.+)@\d+$/u.exec(word)?.[1] === agent) ? agent : word + piece;
}

export function groupTokens(tokens: Token[], merge: boolean, hide: boolean): Group[] {
  const groups: Omit<Group, "name">[] = [];
  let word = -1;
  tokens.forEach((token, index) => {
    if (token.special && hide) {
      word = -1;
      return;
    }
    const last = groups[groups.length - 1];
    if (merge && !token.special && token.word >= 0 && token.word === word) {
      last.tokens.push(index);
      last.text = joined(last.text, readable(token.text));
      return;
    }
    word = token.special ? -1 : token.word;
    groups.push({ text: readable(token.text), tokens: [index], special: token.special });
  });
  return named(groups);
}

/** A long sequence in `count` blocks, as max-pooling cuts it. */
export function stretches(tokens: Token[], count: number): Group[] {
  const blocks = Array.from({ length: count }, (_, part) => {
    const begin = Math.floor((part * tokens.length) / count);
    const end = Math.max(begin + 1, Math.floor(((part + 1) * tokens.length) / count));
    const members = Array.from({ length: end - begin }, (_unused, index) => begin + index);
    const text = members.length === 1 ? readable(tokens[begin].text) : `${readable(tokens[begin].text)} … ${readable(tokens[end - 1].text)}`;
    return { text, tokens: members, special: false };
  });
  return named(blocks);
}

/** The group of a token; -1 if it is hidden. */
export function groupOf(groups: Group[], token: number): number {
  return groups.findIndex((group) => group.tokens.includes(token));
}

/** Whether each group is one token and none is missing, so that there is nothing to merge. */
function every(groups: Group[], size: number): boolean {
  return groups.length === size && groups.every((group) => group.tokens.length === 1);
}

/** Values of groups x groups, and for each row the weight on keys that are not shown. */
export interface Arranged {
  values: Float32Array;
  outside: Float32Array;
}

/** Weights (any x columns) merged by groups; renormalised to sum to 1 over what is shown only on request. */
export function arrange(weights: Float32Array, columns: number, queries: Group[], keys: Group[], renormalise: boolean): Arranged {
  const rows = weights.length / columns;
  if (every(queries, rows) && every(keys, columns)) return { values: weights, outside: new Float32Array(rows) };
  const values = new Float32Array(queries.length * keys.length);
  const outside = new Float32Array(queries.length);
  const row = new Float64Array(columns);
  queries.forEach((query, r) => {
    row.fill(0);
    for (const token of query.tokens) {
      for (let column = 0; column < columns; column++) row[column] += weights[token * columns + column] / query.tokens.length;
    }
    let total = 0;
    let shown = 0;
    for (const weight of row) total += weight;
    const sums = keys.map((key) => {
      let sum = 0;
      for (const token of key.tokens) sum += row[token];
      shown += sum;
      return sum;
    });
    outside[r] = Math.max(0, total - shown);
    const divisor = renormalise && shown > 0 ? shown : 1;
    sums.forEach((sum, c) => (values[r * keys.length + c] = sum / divisor));
  });
  return { values, outside };
}

/** 1 where no piece of the query may look at any piece of the key; null if there is no mask. */
export function arrangeMask(visible: Uint8Array | null, columns: number, queries: Group[], keys: Group[]): Uint8Array | null {
  if (!visible) return null;
  if (every(queries, visible.length / columns) && every(keys, columns)) return visible.map((seen) => 1 - seen);
  const masked = new Uint8Array(queries.length * keys.length);
  queries.forEach((query, r) =>
    keys.forEach((key, c) => {
      const seen = query.tokens.some((i) => key.tokens.some((j) => visible[i * columns + j] === 1));
      masked[r * keys.length + c] = seen ? 0 : 1;
    }),
  );
  return masked;
}
