// Values that arrive later: a value, or one sentence that says why there is none.
import { effect, type Signal } from "@preact/signals";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

export interface Loaded<T> {
  value: T | null;
  error: string | null;
}

export const waiting: Loaded<never> = { value: null, error: null };

export function reason(error: unknown): string {
  return error instanceof Error && error.message ? error.message : "Something went wrong; see the browser's console.";
}

/**
 * Set `target` to what `load` returns, and load again whenever a signal changes that `load` read before its first await. The old
 * value stays until the new one is there, so a value must say what it belongs to. Returns a function that stops this.
 */
export function follow<T>(target: Signal<Loaded<T>>, load: () => Promise<T | null>): () => void {
  let latest = 0;
  return effect(() => {
    const mine = ++latest;
    load().then(
      (value) => {
        if (mine === latest) target.value = { value, error: null };
      },
      (error: unknown) => {
        if (mine === latest) target.value = { value: null, error: reason(error) };
      },
    );
  });
}

/** For views: what `load` returns, loaded again whenever `name` changes. A cached blob is there before the screen is painted. */
export function useLoaded<T>(name: string, load: () => Promise<T>): Loaded<T> {
  const [state, setState] = useState<{ name: string; loaded: Loaded<T> }>({ name: "", loaded: waiting });
  useLayoutEffect(() => {
    let wanted = true;
    load().then(
      (value) => wanted && setState({ name, loaded: { value, error: null } }),
      (error: unknown) => wanted && setState({ name, loaded: { value: null, error: reason(error) } }),
    );
    return () => {
      wanted = false;
    };
  }, [name]);
  return state.name === name ? state.loaded : waiting;
}

/** For views: the last value, kept until the next one is there, so that nothing jumps. */
export function useKept<T>(value: T | null): T | null {
  const kept = useRef<T | null>(null);
  if (value !== null) kept.current = value;
  return kept.current;
}
