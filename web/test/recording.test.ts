import { deflateSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { decodeFloat16 } from "../src/float16";
import { paint, rowOf } from "../src/picture";
import { Cache, Recording } from "../src/recording";
import { ArchiveSource } from "../src/source";
import { add, archive, FakeSource, fakeFiles, half, words, type Files } from "./fake";

const plain = { merge: false, hide: false, renormalise: false };

describe("float16", () => {
  it.each([
    [0x0000, 0],
    [0x0001, 2 ** -24],
    [0x03ff, 1023 * 2 ** -24],
    [0x0400, 2 ** -14],
    [0x3555, 0.333251953125],
    [0x3c00, 1],
    [0x7bff, 65504],
    [0x7c00, Infinity],
    [0xc000, -2],
  ])("%i is %d", (bits, value) => expect(decodeFloat16(Uint16Array.of(bits).buffer)[0]).toBe(value));

  it("keeps NaN", () => expect(decodeFloat16(Uint16Array.of(0x7e00).buffer)[0]).toBeNaN());

  it("is what the fake wrote", () => {
    const values = [0, 0.5, 0.1, 0.9999, 1e-6, 3e-5];
    decodeFloat16(Uint16Array.from(values, half).buffer).forEach((value, at) => expect(Math.abs(value - values[at])).toBeLessThan(6e-4));
  });
});

describe("a recording", () => {
  it("finds each head in the one blob of a step", async () => {
    const recording = await Recording.open(new FakeSource(fakeFiles()), "translator");
    for (const attention of recording.manifest.attentions) {
      for (let head = 0; head < attention.heads; head++) {
        const weights = await recording.weights(attention, head, 0);
        const { weights: exact } = await recording.row(attention, head, 4);
        const row = weights.subarray(4 * attention.columns, 5 * attention.columns);
        expect(Math.max(...row.map((weight, at) => Math.abs(weight - exact[at])))).toBeLessThan(5e-4);
      }
    }
  });

  it("reads masks, vectors and thumbnails", async () => {
    const recording = await Recording.open(new FakeSource(fakeFiles()), "translator");
    const decoder = recording.attention("decoder.1")!;
    const mask = (await recording.mask(decoder))!;
    mask.forEach((seen, at) => expect(seen).toBe(at % 11 <= Math.floor(at / 11) ? 1 : 0));
    expect(await recording.mask(recording.attention("cross.1")!)).toBeNull();
    const vectors = await recording.vectors(decoder, 0);
    expect([vectors.query.length, vectors.key.length, vectors.value.length, vectors.mixed.length]).toEqual([704, 704, 44, 44]);
    const weights = (await recording.row(decoder, 0, 3)).weights;
    const mixed = weights.reduce((sum, weight, at) => sum + weight * vectors.value[at * 4], 0);
    expect(mixed).toBeCloseTo(vectors.mixed[3 * 4], 5);
    const overview = await recording.overview(0);
    expect(overview).toHaveLength(48);
    expect(overview[47].values).toHaveLength(121);
    const input = await recording.input(recording.attention("cross.1")!);
    expect([input.queries.length, input.keys.length]).toEqual([88, 88]);
  });

  it("fetches single heads if all are too large, and prefetches neighbours", async () => {
    const files: Files = new Map();
    add(files, "long", { whole: false, sequences: { tokens: words("a b c") } }, [{ kind: "self", layers: 2, heads: 4, queries: "tokens", keys: "tokens" }]);
    const source = new FakeSource(files);
    const recording = await Recording.open(source, "long");
    const attention = recording.attention("self.1")!;
    expect(recording.manifest.whole).toBe(false);
    await recording.weights(attention, 1, 0);
    await new Promise((resolve) => setTimeout(resolve));
    const asked = () => source.asked.filter((path) => path.endsWith(".f16")).map((path) => path.replace("recordings/long/attention/0/", ""));
    expect(asked()).toEqual(["self.1/1.f16", "self.1/2.f16", "self.1/0.f16", "self.2/1.f16"]);
    await recording.weights(attention, 2, 0);
    expect(asked().filter((path) => path === "self.1/2.f16")).toHaveLength(1);
  });

  it("names a blob that is missing or too short, and can try again", async () => {
    const files = fakeFiles();
    const name = "recordings/translator/attention/0.f16";
    const whole = files.get(name)!;
    const recording = await Recording.open(new FakeSource(files), "translator");
    const attention = recording.attention("encoder.1")!;
    files.delete(name);
    await expect(recording.weights(attention, 0, 0)).rejects.toThrow("There is no recordings/translator/attention/0.f16.");
    files.set(name, whole);
    await expect(recording.weights(attention, 0, 0)).resolves.toHaveLength(121);
    files.set("recordings/translator/row/encoder.1/0/0.f32", new Uint8Array(8));
    await expect(recording.row(attention, 0, 0)).rejects.toThrow("has 2 numbers instead of 22");
  });

  it("rejects an unknown format", async () => {
    const files: Files = new Map([["recordings/x/manifest.json", new TextEncoder().encode('{"format": 2}')]]);
    await expect(Recording.open(new FakeSource(files), "x")).rejects.toThrow("has format 2; this page reads format 1");
  });
});

describe("the cache", () => {
  it("drops the least recently used", async () => {
    const cache = new Cache(10);
    const loads: string[] = [];
    const get = (name: string) => cache.get(name, async () => loads.push(name), () => 4);
    await get("a");
    await get("b");
    await get("a");
    await get("c");
    await get("a");
    expect(loads).toEqual(["a", "b", "c"]);
    await get("b");
    expect(loads).toEqual(["a", "b", "c", "b"]);
  });

  it("does not drop what is still loading", async () => {
    const cache = new Cache(10);
    const loads: string[] = [];
    let arrive: (value: string) => void = () => undefined;
    const late = () => cache.get("late", () => (loads.push("late"), new Promise<string>((resolve) => (arrive = resolve))), () => 4);
    const first = late();
    await cache.get("a", async () => "a", () => 6);
    await cache.get("b", async () => "b", () => 6);
    arrive("here");
    expect([await first, await late()]).toEqual(["here", "here"]);
    expect(loads).toEqual(["late"]);
    expect([cache.has("a"), cache.has("b"), cache.has("late")]).toEqual([false, true, true]);
  });
});

describe("a row", () => {
  it("adds up several queries and states what is hidden", async () => {
    const recording = await Recording.open(new FakeSource(fakeFiles()), "translator");
    const attention = recording.attention("cross.2")!;
    const picture = await paint(recording, attention, 0, 0, plain);
    const one = (await rowOf(picture, [9], plain, false))!;
    const two = (await rowOf(picture, [9, 3], plain, false))!;
    const sum = (values: Float32Array) => values.reduce((total, value) => total + value, 0);
    expect(sum(one.values)).toBeCloseTo(1, 2);
    expect(sum(two.values)).toBeCloseTo(2, 2);
    const how = { ...plain, hide: true };
    const hidden = (await rowOf(await paint(recording, attention, 0, 0, how), [9], how, false))!;
    expect(hidden.keys).toHaveLength(10);
    expect(hidden.outside).toBeCloseTo(one.values[10], 4);
    expect(await rowOf(await paint(recording, attention, 0, 0, how), [0], how, false)).toBeNull();
  });

  it("has the model's float32 numbers if it is exact, also of merged words", async () => {
    const files = fakeFiles();
    const recording = await Recording.open(new FakeSource(files), "translator");
    const attention = recording.attention("cross.2")!;
    const own = Float32Array.from({ length: attention.columns }, (_, at) => (at === 3 ? 0.665435 : 0.01));
    const blob = new Float32Array(attention.columns * 2);
    blob.set(own, attention.columns);
    files.set("recordings/translator/row/cross.2/0/9.f32", new Uint8Array(blob.buffer));
    const picture = await paint(recording, attention, 0, 0, plain);
    expect([...(await rowOf(picture, [9], plain, true))!.values]).toEqual([...own]);
    expect((await rowOf(picture, [9], plain, false))!.values[3]).not.toBeCloseTo(0.665435, 4);
  });

  it("is that of the picture if the exact one cannot be loaded", async () => {
    const files = fakeFiles();
    files.delete("recordings/translator/row/cross.2/0/9.f32");
    const recording = await Recording.open(new FakeSource(files), "translator");
    const picture = await paint(recording, recording.attention("cross.2")!, 0, 0, plain);
    expect([...(await rowOf(picture, [9], plain, true))!.values]).toEqual([...(await rowOf(picture, [9], plain, false))!.values]);
  });

  it("of an input too large to send comes from its own blob", async () => {
    const files: Files = new Map();
    const tokens = words("a b c d e f g h i j k l");
    add(files, "huge", { whole: false, sequences: { tokens } }, [{ kind: "self", layers: 1, heads: 2, queries: "tokens", keys: "tokens", pooled: [4, 4] }]);
    const row = new Float32Array(24);
    row[12 + 7] = 1;
    files.set("recordings/huge/row/self.1/0/5.f32", new Uint8Array(row.buffer));
    const recording = await Recording.open(new FakeSource(files), "huge");
    const picture = await paint(recording, recording.attention("self.1")!, 0, 0, plain);
    expect([picture.pooled, picture.queries.length, picture.values.length]).toEqual([true, 4, 16]);
    expect(picture.queries[1].text).toBe("d … f");
    const found = (await rowOf(picture, [5], plain, false))!;
    expect(found.values[7]).toBe(1);
    expect(found.keys).toHaveLength(12);
  });
});

describe("an archive", () => {
  it("gives back what was packed, as bytes and as base64", async () => {
    const files = fakeFiles();
    const packed = Uint8Array.from(deflateSync(archive(files)));
    for (const source of [await ArchiveSource.unpack(packed), await ArchiveSource.decode(`\n${Buffer.from(packed).toString("base64")}\n`)]) {
      for (const [path, bytes] of files) expect(Buffer.from(await source.get(path)).equals(bytes)).toBe(true);
      await expect(source.get("toString")).rejects.toThrow("This file does not hold toString.");
    }
  });
});
