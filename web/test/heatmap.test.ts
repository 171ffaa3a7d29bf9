import { describe, expect, it } from "vitest";
import { axesOf } from "../src/heatmap";

describe("axesOf", () => {
  it.each([
    ["source", "this word looks …"],
    ["written", "to write this, it looks …"],
    ["patches", "this patch looks …"],
    ["steps", "this step looks …"],
  ])("names what looks in %s", (queries, caption) => expect(axesOf(queries)).toEqual([caption, "… at these"]));
});
