import { describe, expect, it, test } from "vitest";
import { axesOf, layOut, nounOf } from "../src/heatmap";

describe("axesOf", () => {
  it.each([
    ["source", "this word looks …"],
    ["written", "to write this, it looks …"],
    ["patches", "this patch looks …"],
    ["steps", "this step looks …"],
  ])("names what looks in %s", (queries, caption) => expect(axesOf(queries)).toEqual([caption, "… at these"]));
});

test.each([["source", "word"], ["written", "word"], ["patches", "patch"], ["steps", "step"]])("a row of %s is called a %s", (queries, noun) => {
  expect(nounOf(queries)).toBe(noun);
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
