// The selected token of any sequence: that of the shared selection if the selected attention reads the sequence.
import { useSignal } from "@preact/signals";
import { useApp } from "./app";
import { readBy } from "./types";

/** The token, and a function that selects another. For a sequence that the attention does not read, the view has its own. */
export function useToken(sequence: string, begin = 0): [number, (token: number) => void] {
  const { selection, attention, recording } = useApp();
  const own = useSignal<number | null>(null);
  const size = recording.value?.tokens(sequence).length ?? 0;
  const axis = !attention.value ? null : readBy(attention.value) === sequence ? "query" : attention.value.keys === sequence ? "key" : null;
  if (axis) return [selection[axis].value, (token) => selection.choose(axis === "query" ? { query: token, pinned: [] } : { key: token })];
  return [Math.max(0, Math.min(own.value ?? begin, size - 1)), (token) => (own.value = token)];
}
