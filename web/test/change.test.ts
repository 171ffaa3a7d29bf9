// Changes in the address, as sentences, and the words that are new in a text.
import { describe as group, expect, test } from "vitest";
import { active, describe, newWords, positionOf, readChanges, writeChanges, type Change } from "../src/change";
import type { AttentionInfo, Manifest } from "../src/types";

const words = (text: string) => text.split(" ").map((each, id) => ({ text: each, id, special: false, word: id }));
const attention = { id: "cross.2", kind: "cross", layer: 2, heads: 4, queries: "target", keys: "source" } as AttentionInfo;
const manifest = { attentions: [attention], sequences: { source: words("the river bank"), target: words("la rivière") } } as unknown as Manifest;

group("changes in the address", () => {
  test("are read as they were written", () => {
    const changes: Change[] = [
      { place: "cross.2", heads: [3], attention: "zero" },
      { place: "target.1", positions: [1], vector: { place: "target.0", position: 0, text: "a" }, off: true },
    ];
    expect(readChanges(writeChanges(changes))).toEqual(changes);
    expect(writeChanges([])).toBe("");
    expect(active(changes)).toEqual([changes[0]]);
  });

  test.each(["", "x", "{}", "null", "[1, null]", '[{"place": 3}]', '[{"place": "a", "evil": 1}]', '[{"attention": "zero"}]'])("%s is no change", (text) => {
    expect(readChanges(text)).toEqual([]);
  });

  test.each(["heads: 3", "positions: text", "attention: null", "weight: [1, 2]", "vector: 7", "vector: {}", 'vector: {"place": 3, "position": 0}', "off: 1", "toString: 1"])("a field of the wrong kind, %s, makes a change invalid", (field) => {
    const [name, held] = field.split(/: (.*)/);
    const value: unknown = held === "text" ? held : JSON.parse(held);
    expect(readChanges(JSON.stringify([{ place: "cross.2", [name]: value }]))).toEqual([]);
  });
});

test.each<[Change, string]>([
  [{ place: "cross.2", heads: [3], attention: "zero" }, "Cross L2.H4: off"],
  [{ place: "cross.2", attention: "uniform", positions: [1] }, "Cross L2, all heads, rivière: looks evenly"],
  [{ place: "cross.2", heads: [0], attention: 1 }, "Cross L2.H1: looks at river"],
  [{ place: "cross.2", heads: [0], weight: [1, 2, 0.25] }, "Cross L2.H1: rivière → bank is 0.25"],
  [{ place: "target.1", positions: [0], vector: { place: "source.0", position: 2 } }, "target after layer 1, la: from source in the embedding, bank"],
  [{ place: "target.1", positions: [0], vector: { place: "target.1", position: 2, text: "il" } }, "target after layer 1, la: from “il”, target after layer 1, token 3"],
  [{ place: "cross.2", heads: [1], positions: [1], vector: { place: "cross.2", head: 3, position: 0 } }, "Cross L2.H2, rivière: from the output of Cross L2.H4, la"],
])("%j", (change, text) => {
  expect(describe(change, manifest)).toBe(text);
});

group("the steps of a scene", () => {
  const steps = ["a@1", "a@2", "b@1", "b@2"].map((text) => ({ text, id: Number(text.slice(2)), special: false, word: 0 }));
  const self = { ...attention, id: "self.1", kind: "self", layer: 1, queries: "steps", keys: "steps" } as AttentionInfo;
  const scene = { attentions: [self], sequences: { steps } } as unknown as Manifest;

  test("are positions that all agents share", () => {
    expect([0, 1, 2, 3].map((token) => positionOf("steps", token, scene))).toEqual([0, 1, 0, 1]);
    expect(positionOf("source", 2, manifest)).toBe(2);
    expect(describe({ place: "self.1", heads: [0], positions: [1], attention: 0 }, scene)).toBe("Self-attention L1.H1, step 2: looks at step 1");
    expect(describe({ place: "steps.1", positions: [0], vector: { place: "steps.0", position: 3 } }, scene)).toBe("steps after layer 1, step 1: from steps in the embedding, b@2");
  });
});

test("new words are those outside of what both texts share", () => {
  expect(newWords(["a", "b", "c", "d"], ["a", "x", "c", "d", "e"])).toEqual([false, true, false, false, true]);
  expect(newWords([], ["a"])).toEqual([true]);
  expect(newWords(["a"], [])).toEqual([]);
});
