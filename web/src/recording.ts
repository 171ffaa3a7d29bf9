// Typed access to the blobs of one recording. Decoded blobs are cached; the least recently used are dropped first.
import { decodeFloat16 } from "./float16";
import { getJson, type Source } from "./source";
import type { AttentionInfo, BlobKind, LayerGuesses, Manifest, Token } from "./types";

const CAPACITY = 160_000_000;

/** The arithmetic of one row: scores before bias and mask, the bias if there is one, and the model's own weights. */
export interface ScoreRow {
  scores: Float32Array;
  bias: Float32Array | null;
  weights: Float32Array;
}

/** query T x width, key S x width, value S x G, mixed T x G; energy (width) for additive scores. */
export interface Vectors {
  query: Float32Array;
  key: Float32Array;
  value: Float32Array;
  mixed: Float32Array;
  energy: Float32Array | null;
}

/** A max-pooled head; 255 is a weight of 1. */
export interface Thumbnail {
  attention: AttentionInfo;
  head: number;
  rows: number;
  columns: number;
  values: Uint8Array;
}

/** Promises by name. The least recently used are dropped once the total size exceeds a limit; a failed one is dropped at once, so that it can be tried again. */
export class Cache {
  private readonly kept = new Map<string, { promise: Promise<unknown>; bytes: number }>();
  private total = 0;

  constructor(private readonly capacity: number) {}

  get<T>(name: string, load: () => Promise<T>, size: (value: T) => number): Promise<T> {
    const found = this.kept.get(name);
    if (found) {
      this.kept.delete(name);
      this.kept.set(name, found);
      return found.promise as Promise<T>;
    }
    const entry = { promise: load(), bytes: 0 };
    this.kept.set(name, entry);
    entry.promise.then(
      (value) => {
        entry.bytes = size(value);
        this.total += entry.bytes;
        this.shrink();
      },
      () => this.kept.delete(name),
    );
    return entry.promise;
  }

  has(name: string): boolean {
    return this.kept.has(name);
  }

  private shrink(): void {
    for (const [name, entry] of this.kept) {
      if (this.total <= this.capacity || this.kept.size === 1) return;
      if (!entry.bytes) continue; // still loading: its size is not counted yet
      this.total -= entry.bytes;
      this.kept.delete(name);
    }
  }
}

export class Recording {
  private readonly cache: Cache;

  private constructor(
    private readonly source: Source,
    readonly id: string,
    readonly manifest: Manifest,
    capacity: number,
  ) {
    this.cache = new Cache(capacity);
  }

  static async open(source: Source, id: string, capacity = CAPACITY): Promise<Recording> {
    const manifest = await getJson<Manifest>(source, `recordings/${id}/manifest.json`);
    if (manifest.format !== 1) throw new Error(`Recording ${id} has format ${manifest.format}; this page reads format 1.`);
    return new Recording(source, id, manifest, capacity);
  }

  attention(id: string): AttentionInfo | null {
    return this.manifest.attentions.find((attention) => attention.id === id) ?? null;
  }

  tokens(sequence: string): Token[] {
    return this.manifest.sequences[sequence] ?? [];
  }

  /** Whether only a max-pooled picture and single rows of this attention are available. */
  isPooled(attention: AttentionInfo): boolean {
    return attention.pooled !== null && !this.manifest.whole;
  }

  /** T x S weights of one head; where heads are fetched one by one, its neighbours are prefetched. */
  async weights(attention: AttentionInfo, head: number, step: number): Promise<Float32Array> {
    const size = attention.rows * attention.columns;
    if (this.manifest.whole) {
      const name = this.name("all_weights", { step });
      const begin = this.offset(attention, (each) => each.rows * each.columns) + head * size;
      return expect(await this.float16(name), begin + size, name).subarray(begin, begin + size);
    }
    const name = this.headName(attention, head, step);
    const loaded = this.float16(name);
    loaded.then(() => this.prefetch(attention, head, step), () => undefined);
    return expect(await loaded, size, name);
  }

  /** The max-pooled picture of a head that is too large, as weights. */
  async pooled(attention: AttentionInfo, head: number, step: number): Promise<Float32Array> {
    const name = this.name("pooled", { step, attention: attention.id, head });
    return this.kept(name, (buffer) => Float32Array.from(new Uint8Array(buffer), (byte) => byte / 255));
  }

  /** One row of weights, from whichever blob has it. */
  async weightRow(attention: AttentionInfo, head: number, query: number, step: number): Promise<Float32Array> {
    if (this.isPooled(attention)) return (await this.row(attention, head, query)).weights;
    const weights = await this.weights(attention, head, step);
    return weights.subarray(query * attention.columns, (query + 1) * attention.columns);
  }

  async row(attention: AttentionInfo, head: number, query: number): Promise<ScoreRow> {
    const name = this.name("row", { attention: attention.id, head, query });
    const parts = cut(await this.float32(name), attention.columns, attention.bias ? 3 : 2, name);
    return { scores: parts[0], bias: attention.bias ? parts[1] : null, weights: parts[parts.length - 1] };
  }

  async vectors(attention: AttentionInfo, head: number): Promise<Vectors> {
    const { rows, columns, width, value } = attention;
    const name = this.name("vectors", { attention: attention.id, head });
    const all = await this.float32(name);
    const ends = [rows * width, columns * width, columns * value, rows * value];
    let at = 0;
    const [query, key, values, mixed] = ends.map((size) => all.subarray(at, (at += size)));
    expect(all, at, name);
    const energy = attention.score.kind === "additive" ? all.subarray(at, at + width) : null;
    return { query, key, value: values, mixed, energy };
  }

  /** What queries (T x input) and keys (S x any) are computed from; the same array twice if they come from one sequence. */
  async input(attention: AttentionInfo): Promise<{ queries: Float32Array; keys: Float32Array }> {
    const name = this.name("input", { attention: attention.id });
    const all = expect(await this.float32(name), attention.rows * attention.input, name);
    const queries = all.subarray(0, attention.rows * attention.input);
    return { queries, keys: attention.queries === attention.keys ? queries : all.subarray(queries.length) };
  }

  /** T x S bytes, 1 where the query may look at the key; null where it may look anywhere. */
  async mask(attention: AttentionInfo): Promise<Uint8Array | null> {
    if (attention.mask === null) return null;
    const size = attention.rows * attention.columns;
    return this.kept(this.name("mask", { mask: attention.mask }), (buffer) => {
      const bits = new Uint8Array(buffer);
      const visible = new Uint8Array(size);
      for (let at = 0; at < size; at++) visible[at] = (bits[at >> 3] >> (at & 7)) & 1;
      return visible;
    });
  }

  /** Every head as a thumbnail, in the order of the manifest. */
  async overview(step: number): Promise<Thumbnail[]> {
    const name = this.name("overview", { step });
    const bytes = await this.kept(name, (buffer) => new Uint8Array(buffer));
    const thumbnails: Thumbnail[] = [];
    let at = 0;
    for (const attention of this.manifest.attentions) {
      const rows = Math.min(attention.rows, this.manifest.thumbnail);
      const columns = Math.min(attention.columns, this.manifest.thumbnail);
      for (let head = 0; head < attention.heads; head++) {
        thumbnails.push({ attention, head, rows, columns, values: bytes.subarray(at, (at += rows * columns)) });
      }
    }
    expect(bytes, at, name);
    return thumbnails;
  }

  /** T x D hidden states after a layer; layer 0 is the embedding. */
  hidden(sequence: string, layer: number): Promise<Float32Array> {
    return this.float32(this.name("hidden", { sequence, layer }));
  }

  /** Logits over the vocabulary for what follows a token. */
  next(token: number): Promise<Float32Array> {
    return this.float32(this.name("next", { token }));
  }

  /** What each layer would write after a token. */
  lens(token: number): Promise<LayerGuesses[]> {
    return this.kept(this.name("lens", { token }), (buffer) => JSON.parse(new TextDecoder().decode(buffer)) as LayerGuesses[]);
  }

  vocabulary(): Promise<string[]> {
    return this.kept(this.name("vocabulary"), (buffer) => JSON.parse(new TextDecoder().decode(buffer)) as string[]);
  }

  position(table: number): Promise<Float32Array> {
    return this.float32(this.name("position", { table }));
  }

  similarity(table: number): Promise<Float32Array> {
    return this.float32(this.name("similarity", { table }));
  }

  image(): Promise<Blob> {
    return this.kept(this.name("image"), (buffer) => new Blob([buffer], { type: "image/png" }));
  }

  /** T x width numbers of a recurrent layer: its state, or a gate. */
  signal(recurrence: string, signal: number): Promise<Float32Array> {
    return this.float16(this.name("signal", { recurrence, signal }));
  }

  rollout(): Promise<Float32Array> {
    return this.float16(this.name("rollout"));
  }

  /** The name of a blob: its pattern with the fields filled in. */
  private name(kind: BlobKind, fields: Record<string, string | number> = {}): string {
    return this.manifest.blobs[kind].replace(/\{(\w+)\}/g, (_, field: string) => String(fields[field]));
  }

  private headName(attention: AttentionInfo, head: number, step: number): string {
    return this.name("weights", { step, attention: attention.id, head });
  }

  private offset(attention: AttentionInfo, size: (each: AttentionInfo) => number): number {
    let offset = 0;
    for (const each of this.manifest.attentions) {
      if (each === attention) return offset;
      offset += each.heads * size(each);
    }
    throw new Error(`The recording has no attention ${attention.id}.`);
  }

  private prefetch(attention: AttentionInfo, head: number, step: number): void {
    const place = this.manifest.attentions.indexOf(attention);
    const near: [AttentionInfo | undefined, number][] = [
      [attention, head + 1],
      [attention, head - 1],
      [this.manifest.attentions[place + 1], head],
      [this.manifest.attentions[place - 1], head],
    ];
    for (const [each, other] of near) {
      if (!each || this.isPooled(each) || other < 0 || other >= each.heads) continue;
      const name = this.headName(each, other, step);
      if (!this.cache.has(name)) this.float16(name).catch(() => undefined);
    }
  }

  private float16(name: string): Promise<Float32Array> {
    return this.kept(name, decodeFloat16);
  }

  private float32(name: string): Promise<Float32Array> {
    return this.kept(name, (buffer) => new Float32Array(buffer));
  }

  private kept<T>(name: string, decode: (buffer: ArrayBuffer) => T): Promise<T> {
    const load = async () => decode(await this.source.get(`recordings/${this.id}/${name}`));
    return this.cache.get(name, load, byteSize);
  }
}

function byteSize(value: unknown): number {
  if (ArrayBuffer.isView(value)) return value.byteLength;
  return value instanceof Blob ? value.size : 1000;
}

function expect<T extends { length: number }>(numbers: T, length: number, name: string): T {
  if (numbers.length < length) throw new Error(`${name} has ${numbers.length} numbers instead of ${length}.`);
  return numbers;
}

function cut(numbers: Float32Array, size: number, parts: number, name: string): Float32Array[] {
  expect(numbers, size * parts, name);
  return Array.from({ length: parts }, (_, part) => numbers.subarray(part * size, (part + 1) * size));
}
