// Small fake recordings, always the same, for tests and for the preview: a translator, a language model with
// training steps, an image, a long input, and a model without attention. Weights are real softmaxes, so rows sum to 1.
import { crc32, deflateSync } from "node:zlib";
import type { Source } from "../src/source";
import type { AttentionInfo, AttentionKind, RecordingInfo, Manifest, Token } from "../src/types";

export type Files = Map<string, Uint8Array>;

export class FakeSource implements Source {
  /** Every path that was requested, in order. */
  readonly asked: string[] = [];

  constructor(readonly files: Files) {}

  async get(path: string): Promise<ArrayBuffer> {
    this.asked.push(path);
    const bytes = this.files.get(path);
    if (!bytes) throw new Error(`There is no ${path}.`);
    return bytes.slice().buffer;
  }
}

/** Pseudorandom numbers, always the same. */
export function noise(seed: number): () => number {
  let state = seed * 2654435761 + 1;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** float32 to the bits of float16, rounding to nearest; for numbers of 0..65504. */
export function half(value: number): number {
  if (value < 2 ** -24 / 2) return 0;
  if (value < 2 ** -14) return Math.round(value * 2 ** 24);
  const exponent = Math.floor(Math.log2(value));
  return ((exponent + 15) << 10) + Math.round((value / 2 ** exponent - 1) * 1024);
}

const bytesOf = (array: ArrayBufferView): Uint8Array => new Uint8Array(array.buffer, array.byteOffset, array.byteLength).slice();
const json = (value: unknown): Uint8Array => new TextEncoder().encode(JSON.stringify(value));

export function words(text: string, specials: string[] = []): Token[] {
  let word = -1;
  return text.split(" ").map((piece, index) => {
    const special = specials.includes(piece);
    if (!special && !piece.startsWith("##")) word++;
    return { text: piece, id: index, special, word: special ? -1 : word };
  });
}

type Focus = (i: number, j: number) => number;

/** The scores of a head, before the softmax. */
const habits: ((rows: number, columns: number) => Focus)[] = [
  (rows, columns) => (i, j) => 5 * Math.exp(-(((i / rows) * columns - j) ** 2) / 1.5),
  () => (i, j) => (j === i - 1 ? 5 : 0),
  () => (_, j) => (j === 0 ? 4 : 0),
  () => (i, j) => -Math.abs(i - j) / 2,
];

interface Spec {
  kind: AttentionKind;
  layers: number;
  heads: number;
  queries: string;
  keys: string;
  causal?: boolean;
  /** Pretend that it is too large to send. */
  pooled?: [number, number];
}

function attentionsOf(manifest: Manifest, spec: Spec): AttentionInfo[] {
  const rows = manifest.sequences[spec.queries].length;
  const columns = manifest.sequences[spec.keys].length;
  return Array.from({ length: spec.layers }, (_, layer) => ({
    id: `${spec.kind}.${layer + 1}`,
    kind: spec.kind,
    layer: layer + 1,
    name: `${spec.kind}.layers.${layer}`,
    heads: spec.heads,
    groups: 1,
    queries: spec.queries,
    keys: spec.keys,
    rows,
    columns,
    mask: spec.causal ? "causal" : null,
    score: { kind: "dot" as const, scale: 0.125, cap: null },
    position: null,
    bias: false,
    input: 8,
    width: 64,
    value: 4,
    arithmetic: !manifest.steps.length && rows <= 64 && columns <= 64,
    pooled: spec.pooled ?? null,
    statistics: { entropy: [], distance: [], previous: [], first: [] },
  }));
}

function weightsOf(attention: AttentionInfo, head: number, sharpness: number, seed: number): Float32Array {
  const { rows, columns } = attention;
  const random = noise(seed);
  const focus = habits[(head + attention.layer - 1) % habits.length](rows, columns);
  const weights = new Float32Array(rows * columns);
  for (let i = 0; i < rows; i++) {
    let total = 0;
    for (let j = 0; j < columns; j++) {
      const allowed = !attention.mask || j <= i;
      const weight = allowed ? Math.exp(sharpness * (focus(i, j) + random() * 1.5)) : 0;
      weights[i * columns + j] = weight;
      total += weight;
    }
    for (let j = 0; j < columns; j++) weights[i * columns + j] /= total;
  }
  return weights;
}

function measure(attention: AttentionInfo, heads: Float32Array[]): void {
  const { rows, columns, statistics } = attention;
  const mean = (of: (weight: number, i: number, j: number) => number) =>
    heads.map((weights) => weights.reduce((sum, weight, at) => sum + of(weight, Math.floor(at / columns), at % columns), 0) / rows);
  statistics.entropy.push(mean((weight) => (weight > 0 ? -weight * Math.log2(weight) : 0)));
  statistics.distance.push(mean((weight, i, j) => weight * Math.abs(i - j)));
  statistics.previous.push(mean((weight, i, j) => (j === i - 1 ? weight : 0)));
  statistics.first.push(mean((weight, _, j) => (j === 0 ? weight : 0)));
}

export function maxPool(weights: Float32Array, rows: number, columns: number, height: number, width: number): Uint8Array {
  const pooled = new Uint8Array(height * width);
  weights.forEach((weight, at) => {
    const row = Math.min(height - 1, Math.floor((Math.floor(at / columns) * height) / rows));
    const column = Math.min(width - 1, Math.floor(((at % columns) * width) / columns));
    const place = row * width + column;
    pooled[place] = Math.max(pooled[place], Math.round(weight * 255));
  });
  return pooled;
}

function join(parts: Uint8Array[]): Uint8Array {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

function causalBits(rows: number, columns: number): Uint8Array {
  const bits = new Uint8Array(Math.ceil((rows * columns) / 8));
  for (let at = 0; at < rows * columns; at++) if (at % columns <= Math.floor(at / columns)) bits[at >> 3] |= 1 << (at & 7);
  return bits;
}

/** Orthogonal keys, so that queries exist whose scores are the logarithms of the weights. */
function addArithmetic(files: Files, folder: string, attention: AttentionInfo, head: number, weights: Float32Array): void {
  const { rows, columns, width, value, id } = attention;
  const random = noise(head + 1);
  const floats = (size: number) => Float32Array.from({ length: size }, () => random() * 2 - 1);
  const wave = (j: number, d: number) => Math.cos((Math.PI * j * (d + 0.5)) / width) * Math.sqrt((j ? 2 : 1) / width);
  const query = new Float32Array(rows * width);
  const key = Float32Array.from({ length: columns * width }, (_, at) => wave(Math.floor(at / width), at % width));
  const values = floats(columns * value);
  const mixed = new Float32Array(rows * value);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) {
      for (let c = 0; c < value; c++) mixed[i * value + c] += weights[i * columns + j] * values[j * value + c];
    }
    const row = weights.subarray(i * columns, (i + 1) * columns);
    const scores = row.map((weight) => Math.log(Math.max(weight, 1e-6)) + 3);
    for (let d = 0; d < width; d++) query[i * width + d] = scores.reduce((sum, score, j) => sum + score * key[j * width + d], 0) / attention.score.scale;
    files.set(`${folder}/row/${id}/${head}/${i}.f32`, join([bytesOf(scores), bytesOf(row)]));
  }
  files.set(`${folder}/vectors/${id}/${head}.f32`, join([query, key, values, mixed].map(bytesOf)));
  files.set(`${folder}/input/${id}.f32`, bytesOf(floats((attention.queries === attention.keys ? rows : rows + columns) * 8)));
}

const bare: Manifest = {
  format: 1,
  title: "",
  model: "",
  text: "",
  written: null,
  notes: [],
  sequences: {},
  noun: "word",
  attentions: [],
  whole: true,
  steps: [],
  begin: null,
  hidden: [],
  next: null,
  lens: false,
  answers: [],
  positions: [],
  image: null,
  rollout: false,
  contacts: [],
  recurrences: [],
  thumbnail: 32,
  places: [],
  blobs: {
    all_weights: "attention/{step}.f16",
    weights: "attention/{step}/{attention}/{head}.f16",
    pooled: "pooled/{step}/{attention}/{head}.u8",
    overview: "overview/{step}.u8",
    mask: "mask/{mask}.bits",
    input: "input/{attention}.f32",
    vectors: "vectors/{attention}/{head}.f32",
    row: "row/{attention}/{head}/{query}.f32",
    hidden: "hidden/{sequence}/{layer}.f32",
    next: "next/{token}.f32",
    lens: "lens/{token}.json",
    vocabulary: "vocabulary.json",
    position: "position/{table}.f32",
    similarity: "similarity/{table}.f32",
    image: "image.png",
    rollout: "rollout.f16",
    signal: "signal/{recurrence}/{signal}.f16",
  },
};

/** Put a recording with all its blobs into files. */
export function add(files: Files, id: string, given: Partial<Manifest>, specs: Spec[]): Manifest {
  const folder = `recordings/${id}`;
  const manifest: Manifest = { ...bare, ...given };
  manifest.attentions = specs.flatMap((spec) => attentionsOf(manifest, spec));
  const total = manifest.attentions.reduce((sum, each) => sum + each.heads * each.rows * each.columns, 0);
  manifest.whole = total <= 2_000_000 && given.whole !== false;
  const steps = Math.max(1, manifest.steps.length);
  for (let step = 0; step < steps; step++) addStep(files, folder, manifest, step, (step + 1) / steps);
  for (const each of manifest.attentions) if (each.mask) files.set(`${folder}/mask/${each.mask}.bits`, causalBits(each.rows, each.columns));
  for (const { sequence, layers, width } of manifest.hidden) addHidden(files, folder, manifest.sequences[sequence], sequence, layers, width);
  if (manifest.next) addNext(files, folder, manifest.sequences[manifest.next.sequence], manifest.next.vocabulary);
  files.set(`${folder}/manifest.json`, json(manifest));
  return manifest;
}

/** Each word has its own vector, which mixes with its neighbours in each layer. */
function addHidden(files: Files, folder: string, tokens: Token[], sequence: string, layers: number, width: number): void {
  let states = tokens.map((token) => {
    const random = noise([...token.text].reduce((sum, sign) => sum * 31 + sign.charCodeAt(0), 7) % 9973);
    return Float32Array.from({ length: width }, () => random() * 2 - 1);
  });
  for (let layer = 0; layer < layers; layer++) {
    files.set(`${folder}/hidden/${sequence}/${layer}.f32`, join(states.map(bytesOf)));
    states = states.map((state, at) => state.map((value, d) => value + 0.35 * (states[at - 1]?.[d] ?? 0) + 0.25 * (states[at + 1]?.[d] ?? 0)));
  }
}

/** What was written is likely, but not always the most likely; ids are indices into the text. */
function addNext(files: Files, folder: string, tokens: Token[], vocabulary: number): void {
  tokens.forEach((_, row) => {
    const random = noise(row + 1);
    const logits = Float32Array.from({ length: vocabulary }, (_unused, id) => random() * 4 + (id === row + 1 ? 3.5 : 0));
    files.set(`${folder}/next/${row}.f32`, bytesOf(logits));
  });
  files.set(`${folder}/vocabulary.json`, json(Array.from({ length: vocabulary }, (_, id) => tokens[id]?.text ?? `mot${id}`)));
}

function addStep(files: Files, folder: string, manifest: Manifest, step: number, sharpness: number): void {
  const whole: Uint8Array[] = [];
  const overview: Uint8Array[] = [];
  manifest.attentions.forEach((attention, place) => {
    const { rows, columns } = attention;
    const heads = Array.from({ length: attention.heads }, (_, head) => weightsOf(attention, head, sharpness, place * 100 + head));
    measure(attention, heads);
    heads.forEach((weights, head) => {
      overview.push(maxPool(weights, rows, columns, Math.min(rows, 32), Math.min(columns, 32)));
      if (step === 0 && attention.arithmetic) addArithmetic(files, folder, attention, head, weights);
      const halves = bytesOf(Uint16Array.from(weights, half));
      if (manifest.whole) whole.push(halves);
      else if (attention.pooled) files.set(`${folder}/pooled/${step}/${attention.id}/${head}.u8`, maxPool(weights, rows, columns, attention.pooled[0], attention.pooled[1]));
      else files.set(`${folder}/attention/${step}/${attention.id}/${head}.f16`, halves);
    });
  });
  if (manifest.whole) files.set(`${folder}/attention/${step}.f16`, join(whole));
  files.set(`${folder}/overview/${step}.u8`, join(overview));
}

/** A grey picture as a PNG file. */
function png(width: number, height: number, grey: (x: number, y: number) => number): Uint8Array {
  const big = (value: number) => Uint8Array.of(value >>> 24, value >>> 16, value >>> 8, value);
  const chunk = (name: string, data: Uint8Array) => {
    const body = join([new TextEncoder().encode(name), data]);
    return join([big(data.length), body, big(crc32(body))]);
  };
  const line = (y: number) => Uint8Array.from({ length: width + 1 }, (_, x) => (x ? grey(x - 1, y) : 0));
  const pixels = join(Array.from({ length: height }, (_, y) => line(y)));
  const head = join([big(width), big(height), Uint8Array.of(8, 0, 0, 0, 0)]);
  return join([Uint8Array.of(137, 80, 78, 71, 13, 10, 26, 10), chunk("IHDR", head), chunk("IDAT", deflateSync(pixels)), chunk("IEND", new Uint8Array())]);
}

/** Sines and cosines of `count` positions, and the cosine between each two. */
function addPositions(files: Files, id: string, manifest: Manifest, count: number, width: number): void {
  const angle = (position: number, d: number) => position / 10_000 ** ((2 * (d >> 1)) / width);
  const table = Float32Array.from({ length: count * width }, (_, at) => Math[at % 2 ? "cos" : "sin"](angle(Math.floor(at / width), at % width)));
  const alike = Float32Array.from({ length: count * count }, (_, at) => {
    const [i, j] = [Math.floor(at / count), at % count];
    let sum = 0;
    for (let d = 0; d < width; d++) sum += table[i * width + d] * table[j * width + d];
    return (2 * sum) / width;
  });
  const common = { name: "embed.position", kind: "sinusoidal" as const, rowLabel: "position", columnLabel: "feature", note: "The vector of each position." };
  manifest.positions = [{ ...common, rows: count, columns: width, similarities: 1, size: count }];
  files.set(`recordings/${id}/position/0.f32`, bytesOf(table));
  files.set(`recordings/${id}/similarity/0.f32`, bytesOf(alike));
  files.set(`recordings/${id}/manifest.json`, json(manifest));
}

const made = new Map<boolean, Files>();

/** A copy each time, so that a test may change it. */
export function fakeFiles({ long = false } = {}): Files {
  if (!made.has(long)) made.set(long, makeFiles(long));
  return new Map(made.get(long));
}

function makeFiles(long: boolean): Files {
  const files: Files = new Map();
  const listed: RecordingInfo[] = [];
  const put = (id: string, given: Partial<Manifest>, specs: Spec[]) => {
    const manifest = add(files, id, given, specs);
    const { title, model, text } = manifest;
    listed.push({ id, title, model, text });
    return manifest;
  };
  const source = words("the old boat drifts slow ##ly down the river . </s>", ["</s>"]);
  const target = words("<s> le vieux bateau dérive lente ##ment sur la rivière .", ["<s>"]);
  const translator = put(
    "translator",
    {
      title: "English to French",
      model: "a translator",
      text: "the old boat drifts slowly down the river.",
      sequences: { source, target },
      begin: { attention: "cross.2", head: 0, query: 9, key: 8 },
      hidden: ["source", "target"].map((sequence) => ({ sequence, layers: 5, width: 16 })),
      next: { sequence: "target", begin: 1, vocabulary: 60 },
    },
    [
      { kind: "encoder", layers: 4, heads: 4, queries: "source", keys: "source" },
      { kind: "decoder", layers: 4, heads: 4, queries: "target", keys: "target", causal: true },
      { kind: "cross", layers: 4, heads: 4, queries: "target", keys: "source" },
    ],
  );
  addPositions(files, "translator", translator, 64, 32);
  const speech = "First Citizen: Before we proceed any further, hear me speak.";
  const tokens = [...speech].map((text, index) => ({ text, id: index, special: false, word: -1 }));
  put(
    "speech",
    {
      title: "Characters of a play",
      model: "a language model",
      text: speech,
      sequences: { tokens },
      steps: [0, 100, 500, 2000],
      begin: { attention: "self.1", head: 1, query: 20, key: 19 },
    },
    [{ kind: "self", layers: 3, heads: 6, queries: "tokens", keys: "tokens", causal: true }],
  );
  const patches = Array.from({ length: 50 }, (_, at) => ({ text: at ? `${Math.ceil(at / 7)},${((at - 1) % 7) + 1}` : "[CLS]", id: at, special: at === 0, word: at || -1 }));
  put(
    "shoe",
    {
      title: "A shoe in patches",
      model: "an image classifier",
      sequences: { patches },
      image: { rows: 7, columns: 7, first: 1, width: 28, height: 28 },
      begin: { attention: "self.2", head: 0, query: 0, key: 25 },
      answers: [{ question: "What is in this image?", guesses: [{ text: "shoe", probability: 0.8 }, { text: "sandal", probability: 0.15 }] }],
      rollout: true,
    },
    [{ kind: "self", layers: 2, heads: 4, queries: "patches", keys: "patches" }],
  );
  files.set("recordings/shoe/image.png", png(28, 28, (x, y) => (y > 8 && y > 20 - x && y < 22 ? 90 + 5 * x : 12)));
  files.set("recordings/shoe/rollout.f16", bytesOf(Uint16Array.from({ length: 2500 }, (_, at) => half(at % 50 === Math.floor(at / 50) ? 0.51 : 0.01))));
  put(
    "bank",
    {
      title: "English to French",
      model: "a translator",
      text: "an old man sleeps by the river.",
      sequences: { source: words("an old man sleeps by the river . </s>", ["</s>"]), target: words("<s> un vieil homme dort près de la rivière .", ["<s>"]) },
      begin: { attention: "cross.1", head: 0, query: 8, key: 6 },
      hidden: ["source", "target"].map((sequence) => ({ sequence, layers: 5, width: 16 })),
      next: { sequence: "target", begin: 1, vocabulary: 60 },
    },
    [{ kind: "cross", layers: 2, heads: 4, queries: "target", keys: "source" }],
  );
  put("none", { title: "No attention", model: "a plain network", text: "hm", notes: ["This model has no attention."], sequences: { tokens: words("h m") } }, []);
  if (long) {
    const many = Array.from({ length: 1024 }, (_, at) => ({ text: `w${at}`, id: at, special: at === 0, word: at }));
    put("long", { title: "A long text", model: "a language model", text: "w0 w1 …", sequences: { tokens: many } }, [
      { kind: "self", layers: 2, heads: 4, queries: "tokens", keys: "tokens", causal: true },
    ]);
  }
  files.set("recordings.json", json(listed));
  return files;
}

/** The archive without its compression: uint32 length of the index | index | bytes. */
export function archive(files: Files): Uint8Array {
  const index: Record<string, [number, number]> = {};
  let offset = 0;
  for (const [path, bytes] of files) {
    index[path] = [offset, bytes.length];
    offset += bytes.length;
  }
  const head = json(index);
  return join([bytesOf(Uint32Array.of(head.length)), head, ...files.values()]);
}
