import { describe, expect, it } from "vitest";
import { inShort, inTens, isControlToken, mostLikely, probabilities, rankOf, continued } from "../src/next-token";
import { noise } from "./fake";

const random = noise(3);
const logits = Float32Array.from({ length: 500 }, () => random() * 10 - 5);

describe("next tokens", () => {
  it("are sorted, the most likely first", () => {
    const sorted = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a]);
    expect(mostLikely(logits, 10)).toEqual(sorted.slice(0, 10));
    expect(mostLikely(Float32Array.of(1, 3, 3, 2), 10)).toEqual([1, 2, 3, 0]);
    expect(sorted.map((id) => rankOf(logits, id))).toEqual(sorted.map((_, at) => at + 1));
  });

  it.each([0.1, 0.7, 1, 2])("sums to 1 at temperature %d, and is the softmax", (temperature) => {
    const chance = probabilities(logits, temperature);
    const all = Array.from(logits.keys(), chance);
    expect(all.reduce((sum, value) => sum + value, 0)).toBeCloseTo(1, 12);
    expect(Math.log(all[7] / all[9])).toBeCloseTo((logits[7] - logits[9]) / temperature, 9);
  });

  it("are only the most likely at temperature 0", () => {
    const chance = probabilities(logits, 0);
    expect(chance(mostLikely(logits, 1)[0])).toBe(1);
    expect(Array.from(logits.keys(), chance).filter((value) => value > 0)).toHaveLength(1);
    expect(probabilities(Float32Array.of(2, 1, 2), 0)(2)).toBe(0.5);
  });

  it("may have large and forbidden logits", () => {
    const chance = probabilities(Float32Array.of(5000, 4999, -Infinity), 1);
    expect([chance(0), chance(1), chance(2)]).toEqual([expect.closeTo(0.731059, 6), expect.closeTo(0.268941, 6), 0]);
  });
});

it("knows tokens that cannot be continued", () => {
  expect(["</s>", "<pad>", "[SEP]", "<|endoftext|>", "", "\\xb0"].map(isControlToken)).toEqual(Array(6).fill(true));
  expect([" ", "\n", "la", "<", "a<b>", "[x"].map(isControlToken)).toEqual(Array(6).fill(false));
});

it("continues from any token, without special tokens", () => {
  const tokens = ["<s>", "La", " rivière", " est"].map((text, id) => ({ text, id, special: id === 0, word: id }));
  expect(continued(tokens, 2, " dort", ["<s>", " dort"])).toBe("La rivière dort");
  expect(continued(tokens, 0, "Le", ["<s>", " dort"])).toBe("Le");
});

it("puts blanks between tokens that are words", () => {
  const tokens = ["<s>", "La", "rivière"].map((text, id) => ({ text, id, special: id === 0, word: id }));
  expect(continued(tokens, 2, "dort", ["<s>", "La", "dort"])).toBe("La rivière dort");
  expect(continued(tokens, 0, "Le", ["<s>", "La", "dort"])).toBe("Le");
});

it("leaves out the middle of a long text without blanks, and nothing of others", () => {
  expect(inShort("ein Hund ".repeat(10))).toBe("ein Hund ".repeat(10));
  expect(inShort("H".repeat(60))).toBe("H".repeat(60));
  expect(inShort("H".repeat(500) + "E".repeat(500))).toBe(`${"H".repeat(30)} … ${"E".repeat(15)}`);
});

it("writes ten characters as a group", () => {
  expect(inTens("H".repeat(20) + "E")).toBe(`${"H".repeat(10)} ${"H".repeat(10)} E`);
  expect(inTens("😀".repeat(10))).toBe("😀".repeat(10));
});
