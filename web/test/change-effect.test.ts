// Numbers of the Change view.
import { expect, test } from "vitest";
import { shownDifference } from "../src/views/change-effect";

test.each([
  [0.2136, 0.1944, "0.020"], // written as 0.214 and 0.194
  [0.1074, 0.9316, "0.825"],
  [1.0001, 1.0002, "0.000"],
])("the difference of %d and %d is that of the numbers as they are written", (first, second, shown) => {
  expect(shownDifference(first, second).toFixed(3)).toBe(shown);
  expect(shownDifference(first, second)).toBeGreaterThan(0);
});
