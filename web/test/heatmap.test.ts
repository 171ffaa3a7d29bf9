import { describe, expect, it } from "vitest";
import { axesOf, layOut, ticks } from "../src/heatmap";

describe("axesOf", () => {
  it.each([
    ["source", "word", "this word looks …"],
    ["written", "word", "to write this, it looks …"],
    ["patches", "patch", "this patch looks …"],
    ["tokens", "residue", "this residue looks …"],
  ])("names what looks in %s: a %s", (queries, noun, caption) => expect(axesOf(queries, noun)).toEqual([caption, "… at these"]));
});

describe("layOut", () => {
  it("makes wide cells so small that all columns fit, until they are zoomed", () => {
    const heat = { rows: ["1", "2", "3", "4"], columns: Array.from({ length: 31 }, () => "a"), values: new Float32Array(124), scale: { kind: "signed", limit: 1 }, wide: true } as const;
    const widths = [1, 2].map((zoom) => {
      const { left, width } = layOut({ ...heat, rows: [...heat.rows] }, 1224, 480, zoom);
      return left + 31 * width;
    });
    expect(widths[0]).toBeLessThanOrEqual(1224);
    expect(widths[1]).toBeGreaterThan(1224);
  });

  it("fills the width with wide cells, also without labels", () => {
    const many = (count: number) => Array.from({ length: count }, () => "a");
    const heat = { rows: many(128).map(() => "127"), columns: many(26), values: new Float32Array(128 * 26), scale: { kind: "signed", limit: 1 }, wide: true } as const;
    expect(layOut({ ...heat, rows: [...heat.rows], columns: [...heat.columns] }, 343, 480, 1)).toEqual({ cell: 3, width: 11, block: 1, left: 31, top: 20, named: false });
    expect(layOut({ ...heat, rows: [...heat.rows], columns: many(1000) }, 1224, 480, 1)).toMatchObject({ cell: 3, width: 1.191, left: 31 });
    expect(layOut({ ...heat, rows: many(960), columns: many(30) }, 343, 480, 1).block).toBeGreaterThan(1);
  });
});

describe("ticks", () => {
  const from = (first: number, count: number) => Array.from({ length: count }, (_, at) => first + at);
  const written = (positions: number[], pixels: number, apart: number) => ticks(positions, pixels, apart).map((at) => positions[at]);
  it.each([
    ["tokens, from 1", from(1, 118), 4, [20, 40, 60, 80, 100]],
    ["positions, from 0", from(0, 64), 8, [0, 10, 20, 30, 40, 50, 60]],
    ["few tokens", from(1, 4), 60, [1, 2, 3, 4]],
    ["more tokens than pixels", from(1, 1000), 0.5, [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]],
    ["words of several tokens", [1, 4, 9, 11, 12, 19, 21, 30], 20, [11, 21, 30]],
    ["no positions", [], 4, []],
  ])("are round: %s", (_, positions, pixels, found) => expect(written(positions, pixels, 44)).toEqual(found));
});
