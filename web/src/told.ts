// What the Arithmetic view tells of one cell: the model's vectors and numbers, brought together and worked out again.
import { valueOf, workOut, type Question, type Worked } from "./arithmetic";
import type { Recording } from "./recording";
import type { Attention } from "./types";
import { readable } from "./words";

/** A cell with all that is said about it. */
export interface Told extends Question {
  head: number;
  worked: Worked;
  /** What query and key were made of. */
  from: [query: Float32Array, key: Float32Array];
  /** Whether values are what they were made of, as in the attention of a recurrence. */
  bare: boolean;
  /** The words of the query and of all keys. */
  looker: string;
  words: string[];
}

export type Gathered = Omit<Told, "worked" | "from" | "bare" | "key"> & { input: Awaited<ReturnType<Recording["input"]>> };

export async function gather(recording: Recording, attention: Attention, head: number, query: number): Promise<Gathered> {
  const { columns } = attention;
  const [vectors, row, mask, input] = await Promise.all([
    recording.vectors(attention, head),
    recording.row(attention, head, query),
    recording.mask(attention),
    recording.input(attention),
  ]);
  const looker = readable(recording.tokens(attention.queries)[query].text);
  const words = recording.tokens(attention.keys).map((token) => readable(token.text));
  return { attention, head, query, vectors, row, allowed: mask?.subarray(query * columns, (query + 1) * columns) ?? null, input, looker, words };
}

export function tell({ input, ...gathered }: Gathered, wanted: number): Told {
  const { attention, query } = gathered;
  const key = Math.min(wanted, attention.columns - 1);
  const question = { ...gathered, key };
  const wide = input.keys.length / attention.columns;
  const from: Told["from"] = [
    input.queries.subarray(query * attention.input, (query + 1) * attention.input),
    input.keys.subarray(key * wide, (key + 1) * wide),
  ];
  const bare = attention.value === wide && valueOf(question, key).every((number, at) => number === from[1][at]);
  return { ...question, worked: workOut(question), from, bare };
}
