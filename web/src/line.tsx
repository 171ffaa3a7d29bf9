// A text as a line of words to choose from. One of them is in the order of the Tab key, arrows go from word to word.
import { useRef } from "preact/hooks";
import "./line.css";
import type { Group } from "./words";

export interface LineProps {
  /** What text it is. */
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

export function Line({ label, groups, chosen, onPick, strength, style, title }: LineProps) {
  const line = useRef<HTMLDivElement>(null);
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
