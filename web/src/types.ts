// The types of the JSON that Python writes: the same as in regard/viewer/manifest.py; a test compares the two. Everything is
// counted from 0, except layers, which are counted from 1, as people read them.

export type AttentionKind = "encoder" | "decoder" | "cross" | "self";
/** "other": a score that the user registered. */
export type ScoreKind = "dot" | "cosine" | "bilinear" | "reduced-rank" | "additive" | "other";
export type PositionKind = "sinusoidal" | "learned" | "linear" | "rope" | "alibi" | "relative-bias";
export type BlobKind =
  | "all_weights"
  | "weights"
  | "pooled"
  | "overview"
  | "mask"
  | "input"
  | "vectors"
  | "row"
  | "hidden"
  | "next"
  | "lens"
  | "vocabulary"
  | "position"
  | "similarity"
  | "image"
  | "rollout"
  | "signal";

export interface Token {
  text: string;
  id: number;
  special: boolean;
  /** Pieces of one word share a number; -1 for special tokens. */
  word: number;
}

export interface ScoreInfo {
  kind: ScoreKind;
  scale: number;
  cap: number | null;
}

/** Statistics of the heads, as [step][head]; null where a statistic is undefined. */
export interface StatisticsInfo {
  entropy: (number | null)[][];
  distance: (number | null)[][];
  previous: (number | null)[][];
  first: (number | null)[][];
}
export type StatisticName = keyof StatisticsInfo;

export interface AttentionInfo {
  /** Kind and layer: "cross.2". */
  id: string;
  kind: AttentionKind;
  layer: number;
  /** Of the module: "stack.layers.0.mixer". */
  name: string;
  heads: number;
  /** Query heads that share a key head; 1 unless grouped. */
  groups: number;
  /** The sequence of the rows, and that of the columns. */
  queries: string;
  keys: string;
  rows: number;
  columns: number;
  /** The name of its mask; null: every key is visible. */
  mask: string | null;
  score: ScoreInfo;
  position: string | null;
  bias: boolean;
  /** Width of the vectors that queries are computed from. */
  input: number;
  /** Width of a query or key, and of a value. */
  width: number;
  value: number;
  /** Whether vectors and rows are stored. */
  arithmetic: boolean;
  /** Too large to send: rows and columns of the max-pooled picture; only single rows are exact. */
  pooled: number[] | null;
  statistics: StatisticsInfo;
}

export interface Cell {
  attention: string;
  head: number;
  query: number;
  key: number;
}

/** The hidden states of a sequence; layer 0 is the embedding. */
export interface HiddenInfo {
  sequence: string;
  layers: number;
  width: number;
}

/** Next-token scores: the sequence, its first generated token, and the size of the vocabulary. */
export interface NextInfo {
  sequence: string;
  begin: number;
  vocabulary: number;
}

export interface AnswerGuess {
  text: string;
  probability: number;
}

export interface Answer {
  question: string;
  guesses: AnswerGuess[];
}

/** What a layer would write next; layer 0 is the embedding. */
export interface LayerGuesses {
  layer: number;
  guesses: AnswerGuess[];
}

export interface PositionInfo {
  name: string;
  kind: PositionKind;
  rows: number;
  columns: number;
  rowLabel: string;
  columnLabel: string;
  /** How many matrices of size x size. */
  similarities: number;
  size: number;
  note: string;
}

/** How an image is cut into patches; `first` is the token of the first patch. */
export interface ImageInfo {
  rows: number;
  columns: number;
  first: number;
  width: number;
  height: number;
}

/** One vector that a recurrent layer computes at each token: its state, or a gate. */
export interface SignalInfo {
  name: string;
  about: string;
  /** Its numbers are between 0 and 1. */
  gate: boolean;
}

export interface RecurrenceInfo {
  /** Sequence and layer: "source-1-backward". */
  id: string;
  /** Of the module. */
  name: string;
  /** Its class: "LSTM". */
  cell: string;
  sequence: string;
  layer: number;
  /** It reads from the end. */
  backward: boolean;
  /** Tokens. */
  rows: number;
  /** Numbers of a signal. */
  width: number;
  /** What each of them belongs to: "unit" or "head". */
  unit: string;
  signals: SignalInfo[];
}

export interface Manifest {
  format: number;
  title: string;
  model: string;
  text: string;
  /** What the model generated. */
  written: string | null;
  /** Sentences for the reader. */
  notes: string[];
  sequences: Record<string, Token[]>;
  /** What a token is called: "word", "residue", "patch" or "step". */
  noun: string;
  attentions: AttentionInfo[];
  /** The weights of all heads of a step are one blob. */
  whole: boolean;
  /** Training steps; empty for an ordinary recording. */
  steps: number[];
  /** Where the page begins. */
  begin: Cell | null;
  hidden: HiddenInfo[];
  next: NextInfo | null;
  /** Whether there is what each layer would write next. */
  lens: boolean;
  answers: Answer[];
  /** Pairs of residues that the model believes to be in contact, the likeliest first; older recordings have none. */
  contacts: number[][];
  positions: PositionInfo[];
  image: ImageInfo | null;
  rollout: boolean;
  recurrences: RecurrenceInfo[];
  /** Rows and columns of a head in the overview, at most. */
  thumbnail: number;
  /** Where the model can be changed; empty: there is no model to change. */
  places: string[];
  /** The pattern of each kind of blob's name, with fields in braces. */
  blobs: Record<BlobKind, string>;
}

/** How a changed model differs from the original, on the same tokens. */
export interface ChangeResult {
  /** Of each head of each attention: total variation of its weights. */
  moved: Record<string, number[]>;
  /** Of the text, before and after. */
  loss: number[] | null;
  /** The changes in Python. */
  code: string;
}

/** Scores of all heads: by their name, then by attention, a number for each head. */
export interface HeadScoresResult {
  scores: Record<string, Record<string, number[]>>;
}

/** What a model writes by itself, before and after a change. */
export interface WrittenResult {
  written: (string | null)[];
}

/** One entry of recordings.json. */
export interface RecordingInfo {
  id: string;
  title: string;
  model: string;
  text: string;
}

/** One entry of models.json. */
export interface ModelInfo {
  name: string;
  what: string;
  verbs: string[];
  ready: boolean;
  error: string | null;
  image: boolean;
  path: string;
}

/** The sequence whose tokens make the queries. Rows of "written" are named by the word that is about to be written; what
 * the model has read there is the token of the target before it. */
export function readBy(attention: AttentionInfo): string {
  return attention.queries === "written" ? "target" : attention.queries;
}
