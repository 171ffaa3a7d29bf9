import { describe, expect, it } from "vitest";
import { axesOf, layOut } from "../src/heatmap";

describe("axesOf", () => {
  it.each([
    ["source", "this word looks …"],
    ["written", "to write this, it looks …"],
    ["patches", "this patch looks …"],
    ["steps", "this step looks …"],
  ])("names what looks in %s", (queries, caption) => expect(axesOf(queries)).toEqual([caption, "… at these"]));
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
});
