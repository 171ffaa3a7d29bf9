// Hidden states of words: the mean over the pieces of a word, and the cosine of two.
import type { Group } from "./word-groups";

/** The mean vector of some tokens; `states` has one vector of this width per token. */
export function meanOf(states: Float32Array, width: number, tokens: readonly number[]): Float64Array {
  const mean = new Float64Array(width);
  for (const token of tokens) for (let at = 0; at < width; at++) mean[at] += states[token * width + at] / tokens.length;
  return mean;
}

/** 1 for the same direction, 0 for right angles, -1 for opposite directions; null if a vector is zero. */
export function cosine(a: Float64Array, b: Float64Array): number | null {
  let product = 0;
  let one = 0;
  let other = 0;
  for (let at = 0; at < a.length; at++) {
    product += a[at] * b[at];
    one += a[at] * a[at];
    other += b[at] * b[at];
  }
  return one > 0 && other > 0 ? Math.max(-1, Math.min(1, product / Math.sqrt(one * other))) : null;
}

export function same(one: Group, other: Group): boolean {
  return one.text.toLowerCase() === other.text.toLowerCase();
}

/** The word of another text to compare with: the same word, or else the first one that is not special. */
export function counterpart(groups: readonly Group[], text: string, not = -1): number {
  const found = groups.findIndex((group, at) => at !== not && !group.special && group.text.toLowerCase() === text.toLowerCase());
  return found >= 0 ? found : Math.max(0, groups.findIndex((group, at) => at !== not && !group.special));
}

/** The longest word that two texts share; null if the selected word is shared, or none is. */
export function shared(groups: readonly Group[], others: readonly Group[], chosen: number): Group | null {
  const both = groups.filter((group) => others.some((other) => same(group, other)));
  if (both.includes(groups[chosen])) return null;
  return both.reduce<Group | null>((longest, group) => (group.text.length > (longest?.text.length ?? 0) ? group : longest), null);
}
