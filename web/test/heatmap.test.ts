import { describe, expect, it } from "vitest";
import { axesOf, layOut } from "../src/heatmap";

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
    expect(layOut({ ...heat, rows: [...heat.rows], columns: [...heat.columns] }, 343, 480, 1)).toEqual({ cell: 3, width: 13, block: 1, left: 0, top: 0 });
    expect(layOut({ ...heat, rows: [...heat.rows], columns: many(1000) }, 1224, 480, 1)).toMatchObject({ cell: 3, width: 1.222, left: 0 });
    expect(layOut({ ...heat, rows: many(960), columns: many(30) }, 343, 480, 1).block).toBeGreaterThan(1);
  });
});
