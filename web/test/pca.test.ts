import { describe, expect, it } from "vitest";
import { cosine, counterpart, meanOf, shared } from "../src/word-vectors";
import { eigen, pca } from "../src/pca";
import { groupTokens } from "../src/word-groups";
import { noise, words } from "./fake";

describe("principal components", () => {
  it("of points on a line are that line, all of it", () => {
    const { points, shares } = pca([1, 2, 2, 4, 4, 8], 3, 2);
    expect(shares[0]).toBeCloseTo(1, 12);
    expect(shares[1]).toBeCloseTo(0, 12);
    const middle = (7 / 3) * Math.sqrt(5);
    [1, 2, 4].forEach((at, index) => expect(points[index][0]).toBeCloseTo(at * Math.sqrt(5) - middle, 10));
    expect(Math.max(...points.map((point) => Math.abs(point[1])))).toBeLessThan(1e-6);
  });

  it("of a rectangle are its sides, wherever it lies", () => {
    const corners = [10, 5, 16, 5, 10, 7, 16, 7];
    const { points, shares } = pca(corners, 4, 2);
    expect(shares[0]).toBeCloseTo(0.9, 12);
    expect(shares[1]).toBeCloseTo(0.1, 12);
    for (const [x, y] of points) expect([Math.abs(x), Math.abs(y)]).toEqual([expect.closeTo(3, 10), expect.closeTo(1, 10)]);
  });

  it("of a square have half the variance each, though neither direction is the first", () => {
    expect(pca([0, 0, 1, 0, 0, 1, 1, 1], 4, 2).shares).toEqual([expect.closeTo(0.5, 10), expect.closeTo(0.5, 10)]);
  });

  it("of equal points or one point are not defined, of single numbers there is one", () => {
    expect(pca([3, 4, 3, 4], 2, 2)).toEqual({ points: [[0, 0], [0, 0]], shares: [0, 0] });
    expect(pca([3, 4], 1, 2)).toEqual({ points: [[0, 0]], shares: [0, 0] });
    const { points, shares } = pca([1, 3], 2, 1);
    expect(points).toEqual([[1, 0], [-1, 0]]);
    expect(shares).toEqual([1, 0]);
  });

  it("are those of the whole covariance, also of many wide vectors", () => {
    const [count, width] = [150, 60];
    const random = noise(5);
    const scales = Array.from({ length: width }, (_, at) => 1 / (1 + at / 4));
    const vectors = Float32Array.from({ length: count * width }, (_, at) => (random() - 0.5) * scales[at % width]);
    const means = scales.map((_, d) => Array.from({ length: count }, (_row, row) => vectors[row * width + d]).reduce((sum, value) => sum + value, 0) / count);
    const covariance = scales.map((_, p) =>
      scales.map((_other, q) => Array.from({ length: count }, (_row, row) => (vectors[row * width + p] - means[p]) * (vectors[row * width + q] - means[q])).reduce((sum, value) => sum + value, 0)),
    );
    const { values } = eigen(covariance);
    const total = values.reduce((sum, value) => sum + value, 0);
    const { shares, points } = pca(vectors, count, width);
    expect(shares[0]).toBeCloseTo(values[0] / total, 6);
    expect(shares[1]).toBeCloseTo(values[1] / total, 6);
    expect(points.reduce((sum, [x]) => sum + x * x, 0)).toBeCloseTo(shares[0] * total, 6);
    expect(points.reduce((sum, [x, y]) => sum + x * y, 0)).toBeCloseTo(0, 5);
  });

  it("do not depend on the direction of the numbers", () => {
    const points = pca([0, 0, 1, 0, 5, 1], 3, 2).points;
    const turned = pca([0, 0, -1, 0, -5, -1], 3, 2).points;
    points.flat().forEach((value, at) => expect(turned.flat()[at]).toBeCloseTo(value, 10));
  });
});

it("finds eigenvalues of a known matrix", () => {
  const { values, vectors } = eigen([[2, 1, 0], [1, 2, 0], [0, 0, 5]]);
  expect(values).toEqual([expect.closeTo(5, 12), expect.closeTo(3, 12), expect.closeTo(1, 12)]);
  expect(Math.abs(vectors[1][0])).toBeCloseTo(Math.SQRT1_2, 12);
});

describe("vectors of words", () => {
  it("are the mean over the pieces", () => {
    const groups = groupTokens(words("slow ##ly down"), true, false);
    const states = Float32Array.of(1, 2, 3, 6, 9, 9);
    expect([...meanOf(states, 2, groups[0].tokens)]).toEqual([2, 4]);
    expect([...meanOf(states, 2, groups[1].tokens)]).toEqual([9, 9]);
  });

  it("are compared by their angle alone", () => {
    const of = (...numbers: number[]) => Float64Array.from(numbers);
    expect(cosine(of(1, 0), of(5, 0))).toBe(1);
    expect(cosine(of(1, 0), of(0, 2))).toBe(0);
    expect(cosine(of(1, 1), of(-3, -3))).toBe(-1);
    expect(cosine(of(3, 4), of(4, 3))).toBeCloseTo(24 / 25, 12);
    expect(cosine(of(0, 0), of(1, 1))).toBeNull();
  });

  it("are compared with the same word, or the first that is not special", () => {
    const groups = groupTokens(words("<s> the river and The bank", ["<s>"]), true, false);
    expect(counterpart(groups, "The")).toBe(1);
    expect(counterpart(groups, "the", 1)).toBe(4);
    expect(counterpart(groups, "sea")).toBe(1);
    expect(counterpart([], "sea")).toBe(0);
  });

  it("begin with a word that both texts share", () => {
    const [one, other] = ["the wide river bends", "a river by the sea"].map((text) => groupTokens(words(text), true, true));
    expect(shared(one, other, 1)?.text).toBe("river");
    expect(shared(one, other, 0)).toBeNull();
    expect(shared(one, groupTokens(words("no"), true, true), 1)).toBeNull();
  });
});
