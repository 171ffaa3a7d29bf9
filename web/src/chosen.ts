// The chosen token of any sequence: that of the shared selection where the chosen attention reads the sequence.
import { useSignal } from "@preact/signals";
import { useApp } from "./app";
import { readBy } from "./types";

/** The token, and what chooses another. A sequence that the attention does not read has a token of the view's own. */
export function useToken(sequence: string, begin = 0): [number, (token: number) => void] {
  const { selection, attention, recording } = useApp();
  const own = useSignal<number | null>(null);
  const size = recording.value?.tokens(sequence).length ?? 0;
  const axis = !attention.value ? null : readBy(attention.value) === sequence ? "query" : attention.value.keys === sequence ? "key" : null;
  if (axis) return [selection[axis].value, (token) => selection.choose(axis === "query" ? { query: token, pinned: [] } : { key: token })];
  return [Math.max(0, Math.min(own.value ?? begin, size - 1)), (token) => (own.value = token)];
}
