// In which order the units of a recurrent layer are drawn.

export type UnitOrder = "number" | "value" | "change";

/** The value of every unit at a token; `values` is tokens x width. */
export function valuesAt(values: Float32Array, width: number, token: number): Float32Array {
  return values.subarray(token * width, (token + 1) * width);
}

/** How much each unit changes: the sum of its steps from token to token. */
export function changeOf(values: Float32Array, width: number): Float32Array {
  const total = new Float32Array(width);
  for (let at = width; at < values.length; at++) total[at % width] += Math.abs(values[at] - values[at - width]);
  return total;
}

/** The units from first to last: by number, by their value at a token, or by how much they change; the largest first. */
export function orderUnits(values: Float32Array, width: number, token: number, order: UnitOrder): number[] {
  const units = Array.from({ length: width }, (_, unit) => unit);
  if (order === "number") return units;
  const keys = order === "value" ? valuesAt(values, width, token) : changeOf(values, width);
  return units.sort((a, b) => keys[b] - keys[a] || a - b);
}

/** Units x tokens, in an order of the units. */
export function transpose(values: Float32Array, width: number, units: number[]): Float32Array {
  const tokens = values.length / width;
  const turned = new Float32Array(values.length);
  units.forEach((unit, row) => {
    for (let token = 0; token < tokens; token++) turned[row * tokens + token] = values[token * width + unit];
  });
  return turned;
}
