// The shape of a recording's manifest: the same keys as the JSON that Python writes. In blobs everything is counted from 0;
// what a person reads (L4.H2) counts layers and heads from 1.

export interface Token {
  text: string;
  id: number;
  special: boolean;
  /** Pieces of one word share a number; -1 for special tokens. */
  word: number;
}

export type Kind = "encoder" | "decoder" | "cross" | "self";

/** One number a head, for every recorded step: [step][head]; null where it makes no sense. */
export type Statistic = (number | null)[][];
export type StatisticName = "entropy" | "distance" | "previous" | "first";

export interface Attention {
  /** Kind and layer: "cross.2". */
  id: string;
  kind: Kind;
  layer: number;
  /** Of the module: "stack.layers.0.mixer". */
  name: string;
  heads: number;
  /** Query heads that share a key head; 1 unless grouped. */
  groups: number;
  /** Names of sequences. */
  queries: string;
  keys: string;
  rows: number;
  columns: number;
  /** Blob mask/{mask}.bits; null: everything is visible. */
  mask: string | null;
  score: { kind: "dot" | "cosine" | "bilinear" | "reduced-rank" | "additive"; scale: number; cap: number | null };
  position: string | null;
  bias: boolean;
  /** Of what queries are made of. */
  input: number;
  /** Of a prepared query or key, and of a value. */
  width: number;
  value: number;
  /** Whether the vectors/ and row/ blobs are there. */
  arithmetic: boolean;
  /** Too large to send: only a max-pooled picture of this size, and single rows. */
  pooled: [number, number] | null;
  statistics: Record<StatisticName, Statistic>;
}

/** The sequence whose tokens make the queries. Rows of "written" are named by the word that is about to be written; what
 * the model has read there is the token of the target before it. */
export function readBy(attention: Attention): string {
  return attention.queries === "written" ? "target" : attention.queries;
}

export interface Position {
  name: string;
  kind: "sinusoidal" | "learned" | "linear" | "rope" | "alibi" | "relative-bias";
  rows: number;
  columns: number;
  rowLabel: string;
  columnLabel: string;
  /** How many matrices of size x size. */
  similarities: number;
  size: number;
  note: string;
}

export interface Answer {
  question: string;
  guesses: { text: string; probability: number }[];
}

export interface Manifest {
  format: 1;
  title: string;
  model: string;
  text: string;
  /** Plain sentences for the person. */
  notes: string[];
  sequences: Record<string, Token[]>;
  attentions: Attention[];
  /** All weights of a step are in one blob. */
  whole: boolean;
  /** Training steps; empty for an ordinary recording. */
  steps: number[];
  begin: { attention: string; head: number; query: number; key: number } | null;
  hidden: { sequence: string; layers: number; width: number }[];
  next: { sequence: string; begin: number; vocabulary: number } | null;
  answers: Answer[];
  positions: Position[];
  image: { rows: number; columns: number; first: number; width: number; height: number } | null;
  rollout: boolean;
}

/** One line of recordings.json. */
export interface Listed {
  id: string;
  title: string;
  model: string;
  text: string;
}

/** One line of models.json. */
export interface Model {
  name: string;
  what: string;
  verbs: string[];
  ready: boolean;
  error: string | null;
  image: boolean;
  path: string;
}
