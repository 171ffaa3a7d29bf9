import { describe, expect, it } from "vitest";
import { arrange, arrangeMask, distinct, explained, groupOf, groupTokens, notation, numbered, readable, stretches } from "../src/word-groups";
import { noise, words } from "./fake";

const tokens = words("<s> slow ##ly down </s>", ["<s>", "</s>"]);

/** Rows that sum to 1. */
function softmaxes(rows: number, columns: number, seed: number): Float32Array {
  const random = noise(seed);
  const weights = Float32Array.from({ length: rows * columns }, () => random() + 0.01);
  for (let row = 0; row < rows; row++) {
    const part = weights.subarray(row * columns, (row + 1) * columns);
    const total = part.reduce((sum, weight) => sum + weight, 0);
    part.forEach((weight, at) => (part[at] = weight / total));
  }
  return weights;
}

describe("readable", () => {
  it.each([
    ["##ly", "ly"],
    ["▁river", "river"],
    ["Ġriver", "river"],
    [" the", "the"],
    ["low@@", "low"],
    [" ", "␣"],
    ["▁", "␣"],
    ["\n", "⏎"],
    ["", "∅"],
    ["##", "##"],
    ["</script><img src=x onerror=alert(1)>", "</script><img src=x onerror=alert(1)>"],
  ])("%j is read as %j", (text, shown) => expect(readable(text)).toBe(shown));
});

describe("distinct", () => {
  it.each([
    [[" livre", " ouv", " bou", "ouv"], ["livre", "␣ouv", "bou", "ouv"]],
    [["▁ouv", "ouv", "Ġouv"], ["␣ouv", "ouv", "␣ouv"]],
    [["ly", "##ly", "ly@@", "a"], ["ly", "##ly", "ly@@", "a"]],
    [["a", "a ", "\n", " \n"], ["a", "a␣", "⏎", "␣⏎"]],
  ])("%j is listed as %j", (texts, shown) => expect(distinct(texts)).toEqual(shown));

  it("says what the signs mean if there are any", () => {
    expect(explained(["livre", "ouv"])).toBe("");
    expect(explained(["␣ouv", "ouv"])).toContain("␣ is a blank");
    expect(explained(["a", "\\xd7"])).toContain("\\xd7 is a byte");
  });
});

describe("numbered", () => {
  it.each([
    [["the", "bank", "the"], ["the₁", "bank", "the₃"]],
    [["a", "b"], ["a", "b"]],
    [Array<string>(12).fill("V"), Array.from({ length: 12 }, (_, at) => `V${[..."₁₂₃₄₅₆₇₈₉"][at] ?? ["₁₀", "₁₁", "₁₂"][at - 9]}`)],
  ])("%j is told apart as %j", (texts, names) => expect(numbered(texts)).toEqual(names));

  it("counts tokens, not words, and not those that are hidden", () => {
    const text = words("<s> slow ##ly slow ##ly </s>", ["<s>", "</s>"]);
    expect(groupTokens(text, true, true).map((group) => group.name)).toEqual(["slowly₂", "slowly₄"]);
    expect(groupTokens(text, false, false).map((group) => group.name)).toEqual(["<s>", "slow₂", "ly₃", "slow₄", "ly₅", "</s>"]);
  });
});

describe("notation", () => {
  const image = { rows: 2, columns: 3, first: 1, width: 6, height: 4 };
  it.each([
    ["patches", "[class] 1,1 1,2 1,3", image, ["1,2 is the patch in row 1, column 2."]],
    ["patches", "1,1 1,2 1,3", { ...image, first: 0 }, ["1,2 is the patch in row 1, column 2."]],
    ["steps", "29@1 29@2 30@1", null, ["29@2 is agent 29 at step 2."]],
    ["tokens", "The \\xd7 \\xa9", null, ["\\xd7 is a byte in hexadecimal, a part of a character in UTF-8."]],
    ["tokens", "1,2 29@2", null, []],
  ])("of %s: %s", (sequence, text, of, said) => expect(notation({ sequences: { [sequence]: words(text) }, image: of })).toEqual(said));
});

describe("groupTokens", () => {
  it("keeps tokens one by one", () => {
    expect(groupTokens(tokens, false, false).map((group) => group.tokens)).toEqual([[0], [1], [2], [3], [4]]);
  });

  it("merges the pieces of a word and leaves special tokens alone", () => {
    const groups = groupTokens(tokens, true, false);
    expect(groups.map((group) => group.text)).toEqual(["<s>", "slowly", "down", "</s>"]);
    expect(groups[1].tokens).toEqual([1, 2]);
  });

  it("names the steps of an agent by the agent", () => {
    const steps = ["a@1", "a@2", "a@3", "b@1", "b@2"].map((text, id) => ({ text, id, special: false, word: text[0] === "a" ? 0 : 1 }));
    expect(groupTokens(steps, true, false).map((group) => group.text)).toEqual(["a", "b"]);
    const address = ["me@1", ".org"].map((text, id) => ({ text, id, special: false, word: 0 }));
    expect(groupTokens(address, true, false).map((group) => group.text)).toEqual(["me@1.org"]);
  });

  it("hides special tokens", () => {
    expect(groupTokens(tokens, false, true).map((group) => group.tokens)).toEqual([[1], [2], [3]]);
  });

  it("does not merge special tokens beside each other, nor pieces with a special token between them", () => {
    const odd = [...words("<s> <s>", ["<s>"]), { text: "a", id: 1, special: false, word: 0 }, { text: "<s>", id: 0, special: true, word: -1 }, { text: "b", id: 2, special: false, word: 0 }];
    expect(groupTokens(odd, true, false)).toHaveLength(5);
    expect(groupTokens(odd, true, true).map((group) => group.text)).toEqual(["a", "b"]);
  });

  it("finds the group of a token", () => {
    const groups = groupTokens(tokens, true, true);
    expect([0, 1, 2, 3, 4].map((token) => groupOf(groups, token))).toEqual([-1, 0, 0, 1, -1]);
  });
});

describe("arrange", () => {
  it("sums over the pieces of a key and averages over those of a query", () => {
    const weights = Float32Array.of(0.1, 0.2, 0.3, 0.4, 0.5, 0.1, 0.2, 0.2, 0.7, 0.1, 0.1, 0.1);
    const queries = [
      { text: "a", name: "a", tokens: [0, 1], special: false },
      { text: "b", name: "b", tokens: [2], special: false },
    ];
    const keys = [
      { text: "x", name: "x", tokens: [0], special: false },
      { text: "y", name: "y", tokens: [1, 2, 3], special: false },
    ];
    const { values, outside } = arrange(weights, 4, queries, keys, false);
    [0.3, 0.7, 0.7, 0.3].forEach((value, at) => expect(values[at]).toBeCloseTo(value, 6));
    outside.forEach((mass) => expect(mass).toBeCloseTo(0, 6));
  });

  it.each([1, 2, 3, 4, 5])("keeps rows at 1 with what is hidden, and without it when renormalised (%i)", (seed) => {
    const weights = softmaxes(5, 5, seed);
    const groups = groupTokens(tokens, true, true);
    const plain = arrange(weights, 5, groups, groups, false);
    const scaled = arrange(weights, 5, groups, groups, true);
    groups.forEach((_, row) => {
      const sum = (values: Float32Array) => values.subarray(row * groups.length, (row + 1) * groups.length).reduce((total, each) => total + each, 0);
      expect(plain.outside[row]).toBeGreaterThan(0);
      expect(sum(plain.values) + plain.outside[row]).toBeCloseTo(1, 5);
      expect(sum(scaled.values)).toBeCloseTo(1, 5);
      expect(scaled.outside[row]).toBeCloseTo(plain.outside[row], 6);
    });
  });

  it("returns the same array if there is nothing to merge", () => {
    const weights = softmaxes(5, 5, 9);
    const groups = groupTokens(tokens, false, false);
    expect(arrange(weights, 5, groups, groups, false).values).toBe(weights);
  });

  it("masks a merged cell only if all its pieces are masked", () => {
    const visible = Uint8Array.of(1, 0, 0, 1, 1, 0, 1, 1, 1);
    const groups = [
      { text: "a", name: "a", tokens: [0, 1], special: false },
      { text: "b", name: "b", tokens: [2], special: false },
    ];
    expect([...(arrangeMask(visible, 3, groups, groups) ?? [])]).toEqual([0, 1, 0, 0]);
    expect(arrangeMask(null, 3, groups, groups)).toBeNull();
  });
});

it("blocks cover a long sequence without gap or overlap", () => {
  const many = words(Array.from({ length: 103 }, (_, at) => `w${at}`).join(" "));
  const parts = stretches(many, 10);
  expect(parts).toHaveLength(10);
  expect(parts.flatMap((part) => part.tokens)).toEqual(many.map((_, at) => at));
  expect(parts[0].text).toBe("w0 … w9");
});
