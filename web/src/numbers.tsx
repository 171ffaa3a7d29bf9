// Vectors as real tables, for reading and for screen readers.
import { useSignal } from "@preact/signals";
import "./numbers.css";
import { numberText } from "./say";

/** What is written only while it is open. */
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
  /** What a row is called; by default its number. */
  name?(at: number): string;
}

export function Numbers({ caption, columns, name }: NumbersProps) {
  const vectors = Object.values(columns);
  return (
    <table class="ledger">
      <caption>{caption}</caption>
      <thead>
        <tr>
          <th scope="col">{name ? "place" : "dim"}</th>
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
