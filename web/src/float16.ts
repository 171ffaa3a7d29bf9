// float16 to float32 through a table, since not all browsers have Float16Array.

let table: Float32Array | null = null;

function value(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

export function decodeFloat16(buffer: ArrayBuffer): Float32Array {
  table ??= Float32Array.from({ length: 65536 }, (_, bits) => value(bits));
  const bits = new Uint16Array(buffer);
  const numbers = new Float32Array(bits.length);
  for (let at = 0; at < bits.length; at++) numbers[at] = table[bits[at]];
  return numbers;
}
