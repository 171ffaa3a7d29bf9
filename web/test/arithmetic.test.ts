import { describe, expect, it } from "vitest";
import { farthest, numpyScript, recompute, type CellInput } from "../src/arithmetic";
import { loadCell, explainCell } from "../src/arithmetic-cell";
import { Recording } from "../src/recording";
import type { AttentionInfo } from "../src/types";
import { FakeSource, fakeFiles } from "./fake";

type Change = Partial<Pick<CellInput, "allowed" | "key">> & { score?: Partial<AttentionInfo["score"]>; bias?: number[]; energy?: number[] };

/** One query and three keys of two dimensions: q.k is 2, -1 and 4. */
function cellInput({ score = {}, bias, energy, allowed = null, key = 0 }: Change = {}): CellInput {
  const attention = {
    score: { kind: energy ? "additive" : "dot", scale: 1, cap: null, ...score },
    columns: 3,
    width: 2,
    value: 2,
    bias: bias !== undefined,
  } as AttentionInfo;
  return {
    attention,
    vectors: {
      query: Float32Array.of(9, 9, 1, 2),
      key: Float32Array.of(2, 0, 1, -1, 0, 2),
      value: Float32Array.of(1, 0, 0, 1, 4, 4),
      mixed: Float32Array.of(9, 9, 0, 0),
      energy: energy ? Float32Array.from(energy) : null,
    },
    row: { scores: new Float32Array(3), bias: bias ? Float32Array.from(bias) : null, weights: new Float32Array(3) },
    allowed,
    query: 1,
    key,
  };
}

const close = (numbers: ArrayLike<number>, wanted: number[]) => {
  expect(numbers).toHaveLength(wanted.length);
  wanted.forEach((value, at) => expect(numbers[at]).toBeCloseTo(value, 12));
};

function softmax(totals: number[]): number[] {
  const powers = totals.map(Math.exp);
  const sum = powers.reduce((a, b) => a + b);
  return powers.map((power) => power / sum);
}

describe("computing a row again", () => {
  it("takes scaled products, their softmax, and the mean of the values", () => {
    const recomputed = recompute(cellInput({ score: { scale: 0.5 }, key: 1 }));
    close(recomputed.terms, [1, -2]);
    expect([recomputed.sum, recomputed.scaled, recomputed.largest]).toEqual([-1, -0.5, 2]);
    close(recomputed.scores, [1, -0.5, 2]);
    const weights = softmax([1, -0.5, 2]);
    close(recomputed.weights, weights);
    close(recomputed.powers, [Math.exp(-1), Math.exp(-2.5), 1]);
    close(recomputed.output, [weights[0] + 4 * weights[2], weights[1] + 4 * weights[2]]);
  });

  it("caps scores softly before anything is added", () => {
    const recomputed = recompute(cellInput({ score: { cap: 3 }, bias: [0, 10, 0] }));
    const capped = [2, -1, 4].map((score) => 3 * Math.tanh(score / 3));
    close(recomputed.scores, capped);
    close(recomputed.totals, [capped[0], capped[1] + 10, capped[2]]);
    close(recomputed.weights, softmax([capped[0], capped[1] + 10, capped[2]]));
  });

  it("knows the additive score", () => {
    const recomputed = recompute(cellInput({ energy: [2, -3], key: 2 }));
    close(recomputed.terms, [2 * Math.tanh(1), -3 * Math.tanh(4)]);
    close(recomputed.scores, [2 * Math.tanh(3) - 3 * Math.tanh(2), 2 * Math.tanh(2) - 3 * Math.tanh(1), 2 * Math.tanh(1) - 3 * Math.tanh(4)]);
  });

  it("gives masked keys no weight, and none at all if all are masked", () => {
    const some = recompute(cellInput({ allowed: Uint8Array.of(1, 1, 0) }));
    expect(some.largest).toBe(2);
    close(some.weights, [...softmax([2, -1]), 0]);
    const none = recompute(cellInput({ allowed: new Uint8Array(3) }));
    close(none.weights, [0, 0, 0]);
    close(none.output, [0, 0]);
  });

  it("handles scores whose exponential overflows", () => {
    const recomputed = recompute(cellInput({ score: { scale: 1000 } }));
    close(recomputed.weights, [0, 0, 1]);
  });

  it("reports the difference to the model, and whether it is too large", () => {
    const asked = cellInput({ key: 2 });
    const { scores, weights, output } = recompute(asked);
    asked.row.scores.set(scores);
    asked.row.weights.set(weights);
    asked.vectors.mixed.set(output, 2);
    const same = recompute(asked);
    expect(Math.max(...Object.values(same.difference))).toBeLessThan(1e-6);
    expect(same.far).toBe(false);
    asked.vectors.mixed[3] += 0.25;
    expect(recompute(asked).difference.output).toBeCloseTo(0.25, 6);
    expect(recompute(asked).far).toBe(true);
    asked.vectors.mixed[3] = NaN;
    expect(recompute(asked).far).toBe(true);
  });

  it("allows a large score its float32 rounding", () => {
    const asked = cellInput({ score: { scale: 1e4 }, key: 2 });
    asked.row.scores[2] = 40_000.5;
    asked.row.weights[2] = 1;
    asked.vectors.mixed.set([4, 4], 2);
    expect(recompute(asked).difference.score).toBe(0.5);
    expect(recompute(asked).far).toBe(false);
  });
});

describe("the farthest numbers", () => {
  it("come with the sum of the others", () => {
    expect(farthest([1, -5, 2, 0.5], 2)).toEqual({ places: [1, 2], rest: 1.5 });
    expect(farthest([1], 3)).toEqual({ places: [0], rest: 0 });
  });
});

describe("the script", () => {
  it("has every float32 exactly, and everything the score needs", () => {
    const asked = cellInput({ score: { scale: 0.125, cap: 30 }, bias: [-Infinity, 0.1, 1e-9], allowed: Uint8Array.of(1, 0, 1), key: 2 });
    asked.vectors.query[2] = 0.1;
    const script = numpyScript(asked, "two\nlines");
    expect(script).toContain("# two\n# lines\nimport numpy as np\n");
    expect(script).toContain("query = np.array([0.100000001, 2], np.float32)");
    expect(Math.fround(0.100000001)).toBe(Math.fround(0.1));
    expect(script).toContain("bias = np.array([-inf, 0.100000001, 9.99999972e-10], np.float32)");
    expect(script).toContain("allowed = np.array([1, 0, 1], np.bool_)");
    expect(script).toContain("scores = 0.125 * (keys @ query)\nscores = 30 * np.tanh(scores / 30)\ntotals = scores + bias\n");
    expect(script).toContain("key = 2 ");
  });

  it("of the simplest head has nothing more", () => {
    const script = numpyScript(cellInput(), "plain");
    for (const word of ["tanh", "allowed", "bias", "energy"]) expect(script).not.toContain(word);
    expect(script).toContain("totals = scores\npowers = np.exp(totals - totals.max())\n");
    expect(numpyScript(cellInput({ energy: [2, -3] }), "additive")).toContain("scores = np.tanh(query + keys) @ energy");
  });
});

describe("an explained cell", () => {
  it("agrees with the recording", async () => {
    const recording = await Recording.open(new FakeSource(fakeFiles()), "translator");
    for (const id of ["cross.2", "decoder.1"]) {
      const told = explainCell(await loadCell(recording, recording.attention(id)!, 1, 4), 99);
      expect([told.key, told.looker, told.words.length]).toEqual([10, "dérive", 11]);
      expect(told.recomputed.far).toBe(false);
      expect(Math.max(...Object.values(told.recomputed.difference))).toBeLessThan(1e-4);
      expect(told.from.map((each) => each.length)).toEqual([8, 8]);
      expect(told.bare).toBe(false);
    }
  });
});
