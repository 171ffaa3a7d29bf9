// Next tokens: logits as probabilities at a temperature, and the most likely tokens; and how a long answer is written.
import type { Token } from "./types";

/** Token ids, the most likely first; ties are ordered by id. */
export function mostLikely(logits: Float32Array, count: number): number[] {
  const best: number[] = [];
  for (let id = 0; id < logits.length; id++) {
    if (best.length === count && !(logits[id] > logits[best[count - 1]])) continue;
    let place = best.length;
    while (place > 0 && logits[id] > logits[best[place - 1]]) place--;
    best.splice(place, 0, id);
    if (best.length > count) best.pop();
  }
  return best;
}

/** Probabilities by id. At temperature 0, only the most likely tokens have any. */
export function probabilities(logits: Float32Array, temperature: number): (id: number) => number {
  const most = logits.reduce((high, logit) => Math.max(high, logit), -Infinity);
  const power = (id: number) => (temperature > 0 ? Math.exp((logits[id] - most) / temperature) : Number(logits[id] === most));
  let total = 0;
  for (let id = 0; id < logits.length; id++) total += power(id);
  return (id) => power(id) / total;
}

/** The rank of a token, from 1. */
export function rankOf(logits: Float32Array, id: number): number {
  return logits.reduce((count, logit) => count + Number(logit > logits[id]), 1);
}

/** Whether a token has no text, or is a part of a character (`\xb0`), so that generation cannot continue from it. */
export function isControlToken(text: string): boolean {
  return text.trim() === "" ? text === "" : /^(<[^<>\s]+>|\[[A-Z]+\])$|\\x[0-9a-f]{2}/.test(text);
}

/** The text up to a token, and one more token. If no token of the vocabulary has a blank, tokens are words, joined by blanks. */
export function continued(tokens: readonly Token[], last: number, more: string, vocabulary: readonly string[]): string {
  const before = tokens.slice(0, last + 1).filter((token) => !token.special);
  const between = vocabulary.some((text) => /\s/.test(text)) ? "" : " ";
  return [...before.map((token) => token.text), more].join(between);
}

const LONGEST = 60;

/** A text that fits into a headline: the middle of a long one is left out, unless it has blanks, where it can be broken. */
export function inShort(text: string): string {
  const characters = [...text];
  return characters.length > LONGEST && !/\s/.test(text) ? `${characters.slice(0, LONGEST / 2).join("")} … ${characters.slice(-LONGEST / 4).join("")}` : text;
}

/** A text in groups of ten characters, as sequences of proteins are printed. */
export function inTens(text: string): string {
  return text.replace(/.{10}(?=.)/gsu, "$& ");
}
