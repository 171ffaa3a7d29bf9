// The entropy of every head over the steps of training.
import type { AttentionInfo, Manifest } from "./types";

export interface EntropyCurve {
  attention: AttentionInfo;
  head: number;
  /** In bits, one per step. */
  entropy: (number | null)[];
}

export function entropyCurves(manifest: Manifest): EntropyCurve[] {
  return manifest.attentions.flatMap((attention) =>
    Array.from({ length: attention.heads }, (_, head) => ({ attention, head, entropy: manifest.steps.map((_step, at) => attention.statistics.entropy[at]?.[head] ?? null) })),
  );
}

/** The change from the first step to the last, in bits; null if either is unknown. */
export function changeOf({ entropy }: EntropyCurve): number | null {
  const [first, last] = [entropy[0], entropy[entropy.length - 1]];
  return first == null || last == null ? null : last - first;
}

/** The head whose entropy changed most. */
export function mostChanged(curves: EntropyCurve[]): EntropyCurve | null {
  const size = (curve: EntropyCurve) => Math.abs(changeOf(curve) ?? 0);
  return curves.reduce<EntropyCurve | null>((most, curve) => (size(curve) > (most ? size(most) : 0) ? curve : most), null);
}

/** The place of a step on a logarithmic axis, 0..1, since early snapshots are close together; step 0 is included. */
export function placeOf(step: number, last: number): number {
  return last > 0 ? Math.log1p(step) / Math.log1p(last) : 0;
}

/** Steps to write on the axis: 0, powers of ten and the last, if their labels do not overlap. */
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
