import { describe, expect, it } from "vitest";
import { changeOf, orderUnits, transpose, valuesAt } from "../src/unit-order";

// three tokens, two units
const values = Float32Array.of(0, 5, 1, 5, 0, 6);

describe("the units of a recurrent layer", () => {
  it("have values at each token", () => {
    expect([...valuesAt(values, 2, 1)]).toEqual([1, 5]);
  });

  it("change from token to token", () => {
    expect([...changeOf(values, 2)]).toEqual([2, 1]);
  });

  it("are ordered by number, value or change", () => {
    expect(orderUnits(values, 2, 0, "number")).toEqual([0, 1]);
    expect(orderUnits(values, 2, 0, "value")).toEqual([1, 0]);
    expect(orderUnits(values, 2, 0, "change")).toEqual([0, 1]);
  });

  it("are the rows of the picture", () => {
    expect([...transpose(values, 2, [1, 0])]).toEqual([5, 5, 6, 0, 1, 0]);
  });
});
