// The course of a training: how the entropy of every head went from step to step.
import type { Attention, Manifest } from "./types";

export interface Course {
  attention: Attention;
  head: number;
  /** In bits, one a step. */
  entropy: (number | null)[];
}

export function coursesOf(manifest: Manifest): Course[] {
  return manifest.attentions.flatMap((attention) =>
    Array.from({ length: attention.heads }, (_, head) => ({ attention, head, entropy: manifest.steps.map((_step, at) => attention.statistics.entropy[at]?.[head] ?? null) })),
  );
}

/** Bits gained since the first step; null where either end is not known. */
export function changeOf({ entropy }: Course): number | null {
  const [first, last] = [entropy[0], entropy[entropy.length - 1]];
  return first == null || last == null ? null : last - first;
}

/** The head whose entropy changed most. */
export function mostChanged(courses: Course[]): Course | null {
  const size = (course: Course) => Math.abs(changeOf(course) ?? 0);
  return courses.reduce<Course | null>((most, course) => (size(course) > (most ? size(most) : 0) ? course : most), null);
}

/** 0..1: snapshots lie close together at first, so steps are spread by the logarithm; step 0 has a place too. */
export function placeOf(step: number, last: number): number {
  return last > 0 ? Math.log1p(step) / Math.log1p(last) : 0;
}

/** Steps to write on the axis: 0, powers of ten and the last, as far as they do not touch. */
export function ticksOf(last: number, apart: number): number[] {
  const ticks = [0];
  for (let step = 1; step < last; step *= 10) ticks.push(step);
  const kept: number[] = [];
  for (const step of ticks) {
    const clear = kept.every((other) => placeOf(step, last) - placeOf(other, last) >= apart);
    if (clear && 1 - placeOf(step, last) >= apart) kept.push(step);
  }
  return [...kept, last];
}
