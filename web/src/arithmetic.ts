// The arithmetic of one cell, computed again in float64 from the model's own float32 vectors: the score of a query and a key
// with its terms, the softmax of the row, the weighted sum of the values; and all of it as a NumPy script. No component here.
import type { ScoreRow, Vectors } from "./recording";
import type { AttentionInfo } from "./types";

/** What the model computed for one query, and the selected key. */
export interface CellInput {
  attention: AttentionInfo;
  vectors: Vectors;
  row: ScoreRow;
  /** 1 for the keys that this query may look at; null: all keys. */
  allowed: Uint8Array | null;
  query: number;
  key: number;
}

export interface Recomputed {
  /** The terms of the score: a product for each dimension, or energy times tanh. */
  terms: Float64Array;
  sum: number;
  /** The sum times the scale, before a cap. */
  scaled: number;
  /** For every key: the scaled and capped score; with its bias; exp(total - largest), 0 if masked; and the weight. */
  scores: Float64Array;
  totals: Float64Array;
  largest: number;
  powers: Float64Array;
  powerSum: number;
  weights: Float64Array;
  output: Float64Array;
  /** Differences from the model's own numbers: score and weight of the cell, and the largest difference of the output. */
  difference: { score: number; weight: number; output: number };
  /** Whether a difference is larger than rounding explains. */
  far: boolean;
}

const ROUNDING = 1e-4;

const rowOf = (numbers: Float32Array, row: number, width: number): Float32Array => numbers.subarray(row * width, (row + 1) * width);

export const queryOf = ({ attention, vectors, query }: CellInput): Float32Array => rowOf(vectors.query, query, attention.width);
export const keyOf = ({ attention, vectors }: CellInput, key: number): Float32Array => rowOf(vectors.key, key, attention.width);
export const valueOf = ({ attention, vectors }: CellInput, key: number): Float32Array => rowOf(vectors.value, key, attention.value);
export const mixedOf = ({ attention, vectors, query }: CellInput): Float32Array => rowOf(vectors.mixed, query, attention.value);

const add = (numbers: Float64Array): number => numbers.reduce((sum, number) => sum + number, 0);

/** The terms of the score of the query and a key. */
function termsOf(input: CellInput, key: number): Float64Array {
  const { energy } = input.vectors;
  const keys = keyOf(input, key);
  return Float64Array.from(queryOf(input), (number, at) => (energy ? energy[at] * Math.tanh(number + keys[at]) : number * keys[at]));
}

function cap(score: number, limit: number | null): number {
  return limit === null ? score : limit * Math.tanh(score / limit);
}

export function recompute(input: CellInput): Recomputed {
  const { attention, row, allowed, key } = input;
  const { scale, cap: limit } = attention.score;
  const { columns, value } = attention;
  const terms = termsOf(input, key);
  const sum = add(terms);
  const scores = Float64Array.from({ length: columns }, (_, at) => cap(scale * add(termsOf(input, at)), limit));
  const totals = scores.map((score, at) => score + (row.bias?.[at] ?? 0));
  const seen = (at: number) => !allowed || allowed[at] === 1;
  const largest = totals.reduce((most, total, at) => (seen(at) && total > most ? total : most), -Infinity);
  const powers = totals.map((total, at) => (seen(at) ? Math.exp(total - largest) : 0));
  const powerSum = add(powers);
  const weights = powers.map((power) => power / (powerSum || 1));
  const output = new Float64Array(value);
  weights.forEach((weight, at) => valueOf(input, at).forEach((number, place) => (output[place] += weight * number)));
  const own = mixedOf(input);
  const difference = {
    score: Math.abs(scores[key] - row.scores[key]),
    weight: Math.abs(weights[key] - row.weights[key]),
    output: output.reduce((most, number, at) => Math.max(most, Math.abs(number - own[at])), 0),
  };
  // float32 has seven digits, so the differences of large numbers are larger
  const size = (numbers: Float32Array) => numbers.reduce((most, number) => Math.max(most, Math.abs(number)), 1);
  const shares = [difference.score / size(row.scores.subarray(key, key + 1)), difference.weight, difference.output / size(own)];
  return { terms, sum, scaled: scale * sum, scores, totals, largest, powers, powerSum, weights, output, difference, far: !shares.every((share) => share <= ROUNDING) };
}

/** The indices of the numbers farthest from 0, and the sum of all others. */
export function farthest(numbers: ArrayLike<number>, count: number): { places: number[]; rest: number } {
  const order = Array.from(numbers, (_, at) => at).sort((a, b) => Math.abs(numbers[b]) - Math.abs(numbers[a]));
  return { places: order.slice(0, count), rest: order.slice(count).reduce((sum, at) => sum + numbers[at], 0) };
}

/** Enough digits to identify a float32. */
function literal(number: number): string {
  if (Number.isNaN(number)) return "nan";
  if (!Number.isFinite(number)) return number > 0 ? "inf" : "-inf";
  return String(Number(number.toPrecision(9)));
}

function list(numbers: ArrayLike<number>): string {
  return `[${Array.from(numbers, literal).join(", ")}]`;
}

function table(numbers: Float32Array, width: number): string {
  const lines = Array.from({ length: numbers.length / width }, (_, row) => `    ${list(rowOf(numbers, row, width))},\n`);
  return `[\n${lines.join("")}]`;
}

/** A script that needs only NumPy: the numbers of the row, the computation, and a comparison with the model. */
export function numpyScript(input: CellInput, title: string): string {
  const { attention, vectors, row, allowed, key } = input;
  const { kind, scale, cap: limit } = attention.score;
  const array = (name: string, text: string, type = "float32") => `${name} = np.array(${text}, np.${type})`;
  const lines = [
    ...title.split("\n").map((line) => `# ${line}`),
    "import numpy as np",
    "from numpy import inf, nan  # some numbers may be infinite or undefined",
    "",
    array("query", list(queryOf(input))),
    array("keys", table(vectors.key, attention.width)),
    array("values", table(vectors.value, attention.value)),
    ...(vectors.energy ? [array("energy", list(vectors.energy))] : []),
    ...(row.bias ? [array("bias", list(row.bias))] : []),
    ...(allowed ? [array("allowed", `[${allowed.join(", ")}]`, "bool_")] : []),
    `key = ${key}  # the selected key`,
    "",
    "# the model's own numbers",
    array("model_scores", list(row.scores)),
    array("model_weights", list(row.weights)),
    array("model_output", list(mixedOf(input))),
    "",
    "query, keys, values = (array.astype(np.float64) for array in (query, keys, values))",
    kind === "additive" ? "scores = np.tanh(query + keys) @ energy" : `scores = ${scale} * (keys @ query)`,
    ...(limit === null ? [] : [`scores = ${limit} * np.tanh(scores / ${limit})`]),
    row.bias ? "totals = scores + bias" : "totals = scores",
    ...(allowed
      ? ["largest = totals[allowed].max() if allowed.any() else 0.0", "powers = np.exp(np.where(allowed, totals - largest, -inf))"]
      : ["powers = np.exp(totals - totals.max())"]),
    "weights = powers / (powers.sum() or 1.0)",
    "output = weights @ values",
    "",
    'print(f"score   {scores[key]:.6f}, the model\'s own {model_scores[key]:.6f}")',
    'print(f"weight  {weights[key]:.6f}, the model\'s own {model_weights[key]:.6f}")',
    'print("output ", output)',
    "close = dict(rtol=1e-4, atol=1e-4)",
    "np.testing.assert_allclose(scores, model_scores, **close)",
    "np.testing.assert_allclose(weights, model_weights, **close)",
    "np.testing.assert_allclose(output, model_output, **close)",
  ];
  return `${lines.join("\n")}\n`;
}
