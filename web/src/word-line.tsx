// A text as a line of words to choose from. Tab reaches one of them, the arrow keys move from word to word.
import { useLayoutEffect, useRef } from "preact/hooks";
import "./word-line.css";
import type { Group } from "./word-groups";

export interface WordLineProps {
  /** The name of the text. */
  label: string;
  groups: Group[];
  /** The chosen word; -1 for none. */
  chosen: number;
  onPick(at: number): void;
  /** How strongly a word is tinted, 0..1. */
  strength?(at: number): number;
  /** Further classes: "written", "later". */
  style?(at: number): string;
  title?(at: number): string | undefined;
}

export function WordLine({ label, groups, chosen, onPick, strength, style, title }: WordLineProps) {
  const line = useRef<HTMLDivElement>(null);
  // a long text scrolls by itself, so that the chosen word is seen; the page stays where it is
  useLayoutEffect(() => {
    const [box, word] = [line.current, line.current?.querySelectorAll<HTMLElement>("button")[chosen]];
    if (!box || !word) return;
    const top = word.offsetTop - box.offsetTop;
    if (top < box.scrollTop || top + word.offsetHeight > box.scrollTop + box.clientHeight) box.scrollTop = top - (box.clientHeight - word.offsetHeight) / 2;
  }, [chosen, groups.length]);
  const press = (event: KeyboardEvent) => {
    const next = { ArrowLeft: chosen - 1, ArrowRight: chosen + 1, Home: 0, End: groups.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const at = Math.max(0, Math.min(groups.length - 1, next));
    onPick(at);
    line.current?.querySelectorAll<HTMLElement>("button")[at]?.focus();
  };
  return (
    <div class="line" role="group" aria-label={label} ref={line} onKeyDown={press}>
      {groups.map((group, at) => (
        <button
          key={at}
          type="button"
          class={`${group.special ? "special " : ""}${style?.(at) ?? ""}`}
          aria-pressed={at === chosen}
          tabIndex={at === Math.max(0, chosen) ? 0 : -1}
          title={title?.(at)}
          style={{ "--strength": `${Math.round(45 * Math.min(1, strength?.(at) ?? 0))}%` }}
          onClick={() => onPick(at)}
        >
          {group.text}
        </button>
      ))}
    </div>
  );
}
