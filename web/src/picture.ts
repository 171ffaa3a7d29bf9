// The weights of one head as a picture of groups x groups, and the row of the selected words in it.
import type { Recording } from "./recording";
import type { Choice } from "./selection";
import type { AttentionInfo } from "./types";
import { arrange, arrangeMask, groupOf, groupTokens, stretches, type Group } from "./word-groups";

interface HeadView {
  attention: AttentionInfo;
  head: number;
  step: number;
  queries: Group[];
  keys: Group[];
  /** Of a picture, queries x keys; of a row, one per key, summed over its queries. */
  values: Float32Array;
  /** 1 where the mask hides the key. */
  masked: Uint8Array | null;
}

export interface Picture extends HeadView {
  recording: Recording;
  /** For every query, the weight on keys that are not shown. */
  outside: Float32Array;
  /** Only a max-pooled picture of a long input. */
  pooled: boolean;
}

export interface Row extends HeadView {
  /** The weight on keys that are not shown. */
  outside: number;
}

export type Arrangement = Pick<Choice, "merge" | "hide" | "renormalise">;

export function groupsOf(recording: Recording, sequence: string, how: Arrangement): Group[] {
  return groupTokens(recording.tokens(sequence), how.merge, how.hide);
}

export async function paint(recording: Recording, attention: AttentionInfo, head: number, step: number, how: Arrangement): Promise<Picture> {
  const pooled = recording.isPooled(attention);
  const common = { recording, attention, head, step, pooled };
  const mask = recording.mask(attention);
  if (pooled && attention.pooled) {
    const queries = stretches(recording.tokens(attention.queries), attention.pooled[0]);
    const keys = stretches(recording.tokens(attention.keys), attention.pooled[1]);
    const values = await recording.pooled(attention, head, step);
    const masked = maskOf(await mask, attention, queries, keys, "pooled");
    return { ...common, queries, keys, values, masked, outside: new Float32Array(queries.length) };
  }
  const queries = groupsOf(recording, attention.queries, how);
  const keys = groupsOf(recording, attention.keys, how);
  const weights = await recording.weights(attention, head, step);
  const { values, outside } = arrange(weights, attention.columns, queries, keys, how.renormalise);
  const masked = maskOf(await mask, attention, queries, keys, `${how.merge} ${how.hide}`);
  return { ...common, queries, keys, values, outside, masked };
}

const masks = new WeakMap<Uint8Array, { name: string; masked: Uint8Array | null }>();

/** The mask by groups, cached because all heads share it. */
function maskOf(visible: Uint8Array | null, attention: AttentionInfo, queries: Group[], keys: Group[], arrangement: string): Uint8Array | null {
  if (!visible) return null;
  const name = `${attention.queries} ${attention.keys} ${arrangement}`;
  const known = masks.get(visible);
  if (known?.name === name) return known.masked;
  const masked = arrangeMask(visible, attention.columns, queries, keys);
  masks.set(visible, { name, masked });
  return masked;
}

/** The row of the words that contain these tokens; null if they are hidden. An exact one has the model's float32 numbers, if the
 * recording has them; a picture has float16, which may differ in the third digit. */
export async function rowOf(picture: Picture, tokens: readonly number[], how: Arrangement, exact: boolean): Promise<Row | null> {
  const { recording, attention, head, step } = picture;
  const all = picture.pooled ? groupsOf(recording, attention.queries, how) : picture.queries;
  const keys = picture.pooled ? groupsOf(recording, attention.keys, how) : picture.keys;
  const chosen = [...new Set(tokens.map((token) => groupOf(all, token)))].filter((index) => index >= 0);
  if (!chosen.length) return null;
  const queries = chosen.map((index) => all[index]);
  const values = new Float32Array(keys.length);
  let outside = 0;
  for (const index of chosen) {
    const drawn = { values: picture.values.subarray(index * keys.length, (index + 1) * keys.length), outside: picture.outside.subarray(index) };
    const wanted = picture.pooled || (exact && attention.arithmetic);
    // without the exact row, as when the server is gone, the drawn one will do
    const part = wanted ? await exactRow(all[index]).catch((error: unknown) => (picture.pooled ? Promise.reject(error) : drawn)) : drawn;
    part.values.forEach((weight, column) => (values[column] += weight));
    outside += part.outside[0];
  }
  const masked = arrangeMask(await recording.mask(attention), attention.columns, [merged(queries)], keys);
  return { attention, head, step, queries, keys, values, masked, outside };

  async function exactRow(query: Group) {
    const rows = await Promise.all(query.tokens.map((token) => recording.row(attention, head, token)));
    const together = new Float32Array(rows.length * attention.columns);
    rows.forEach((row, index) => together.set(row.weights, index * attention.columns));
    const group = { ...query, tokens: rows.map((_, index) => index) };
    return arrange(together, attention.columns, [group], keys, how.renormalise);
  }
}

/** The picture with the model's float32 numbers, if the recording has them. */
export async function exactly(picture: Picture, how: Arrangement): Promise<Picture> {
  const { recording, attention, head, queries, keys } = picture;
  if (picture.pooled || !attention.arithmetic) return picture;
  const weights = new Float32Array(attention.rows * attention.columns);
  const rows = await Promise.all(Array.from({ length: attention.rows }, (_, query) => recording.row(attention, head, query)));
  rows.forEach((row, query) => weights.set(row.weights, query * attention.columns));
  return { ...picture, ...arrange(weights, attention.columns, queries, keys, how.renormalise) };
}

function merged(groups: Group[]): Group {
  return { text: "", name: "", tokens: groups.flatMap((group) => group.tokens), special: false };
}
