// Vectors as real tables, also for screen readers.
import { useSignal } from "@preact/signals";
import "./numbers.css";
import { numberText } from "./sentence";

/** Details whose content exists only while they are open. */
export function Folded({ summary, children }: { summary: string; children(): preact.ComponentChildren }) {
  const open = useSignal(false);
  return (
    <details onToggle={(event) => (open.value = event.currentTarget.open)}>
      <summary>{summary}</summary>
      {open.value && <div class="everything">{children()}</div>}
    </details>
  );
}

export interface NumbersProps {
  caption: string;
  columns: Record<string, ArrayLike<number>>;
  /** The name of a row; by default its number. */
  name?(at: number): string;
}

export function Numbers({ caption, columns, name }: NumbersProps) {
  const vectors = Object.values(columns);
  return (
    <table class="ledger">
      <caption>{caption}</caption>
      <thead>
        <tr>
          <th scope="col">{name ? "position" : "dim"}</th>
          {Object.keys(columns).map((title) => (
            <th key={title} scope="col">
              {title}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {Array.from({ length: Math.max(...vectors.map((each) => each.length)) }, (_, at) => (
          <tr key={at}>
            <th scope="row">{name?.(at) ?? at}</th>
            {vectors.map((each, column) => (
              <td key={column}>{at < each.length && numberText(each[at], 6)}</td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
