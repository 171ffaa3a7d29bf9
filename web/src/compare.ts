// The difference of two heads, cell by cell.
import type { Picture } from "./picture";

export interface Difference {
  /** Here minus there. */
  values: Float32Array;
  masked: Uint8Array | null;
  /** The number farthest from 0. */
  limit: number;
  /** Whether both have the same words; otherwise cells are compared by position. */
  same: boolean;
}

/** Null if the two differ in size. */
export function difference(here: Picture, there: Picture): Difference | null {
  if (here.queries.length !== there.queries.length || here.keys.length !== there.keys.length) return null;
  const values = here.values.map((weight, at) => weight - there.values[at]);
  const masked = here.masked && there.masked ? here.masked.map((hidden, at) => hidden & (there.masked?.[at] ?? 0)) : null;
  const alike = (side: "queries" | "keys") => here[side].every((group, at) => group.text === there[side][at].text);
  return { values, masked, limit: values.reduce((most, value) => Math.max(most, Math.abs(value)), 0), same: alike("queries") && alike("keys") };
}

/** Indices in begin..end of the numbers farthest from 0, the farthest first. */
export function largest(values: Float32Array, count: number, begin = 0, end = values.length): number[] {
  const places: number[] = [];
  for (let at = begin; at < end; at++) {
    const size = Math.abs(values[at]);
    if (!(size > 0) || (places.length === count && size <= Math.abs(values[places[count - 1]]))) continue;
    let place = places.length;
    while (place > 0 && size > Math.abs(values[places[place - 1]])) place--;
    places.splice(place, 0, at);
    if (places.length > count) places.pop();
  }
  return places;
}
