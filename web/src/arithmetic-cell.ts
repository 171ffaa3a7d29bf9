// Everything that the Arithmetic view shows of one cell: the model's vectors and numbers, and the same computed again.
import { valueOf, recompute, type CellInput, type Recomputed } from "./arithmetic";
import type { Recording } from "./recording";
import type { AttentionInfo } from "./types";
import { namesOf } from "./word-groups";

/** A cell with everything the view shows of it. */
export interface ArithmeticCell extends CellInput {
  head: number;
  recomputed: Recomputed;
  /** The inputs that query and key are computed from. */
  from: [query: Float32Array, key: Float32Array];
  /** Whether values equal their inputs, as in the attention of a recurrent model. */
  bare: boolean;
  /** The words of the query and of all keys. */
  looker: string;
  words: string[];
}

export type LoadedCell = Omit<ArithmeticCell, "recomputed" | "from" | "bare" | "key"> & { input: Awaited<ReturnType<Recording["input"]>> };

export async function loadCell(recording: Recording, attention: AttentionInfo, head: number, query: number): Promise<LoadedCell> {
  const { columns } = attention;
  const [vectors, row, mask, input] = await Promise.all([
    recording.vectors(attention, head),
    recording.row(attention, head, query),
    recording.mask(attention),
    recording.input(attention),
  ]);
  const looker = namesOf(recording.tokens(attention.queries))[query];
  const words = namesOf(recording.tokens(attention.keys));
  return { attention, head, query, vectors, row, allowed: mask?.subarray(query * columns, (query + 1) * columns) ?? null, input, looker, words };
}

export function explainCell({ input, ...gathered }: LoadedCell, wanted: number): ArithmeticCell {
  const { attention, query } = gathered;
  const key = Math.min(wanted, attention.columns - 1);
  const cell = { ...gathered, key };
  const wide = input.keys.length / attention.columns;
  const from: ArithmeticCell["from"] = [
    input.queries.subarray(query * attention.input, (query + 1) * attention.input),
    input.keys.subarray(key * wide, (key + 1) * wide),
  ];
  const bare = attention.value === wide && valueOf(cell, key).every((number, at) => number === from[1][at]);
  return { ...cell, recomputed: recompute(cell), from, bare };
}
