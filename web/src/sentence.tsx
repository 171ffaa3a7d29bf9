// How numbers and heads are written, and the sentence that describes the selection.
import { useApp } from "./app";
import type { Row } from "./picture";
import type { AttentionInfo, AttentionKind } from "./types";
import { groupOf } from "./word-groups";

export const kindTitles: Record<AttentionKind, string> = {
  encoder: "Encoder",
  decoder: "Decoder",
  cross: "Cross",
  self: "Self-attention",
};

/** L4.H2: layers and heads counted from 1. */
export function headName(attention: AttentionInfo, head: number): string {
  return `L${attention.layer}.H${head + 1}`;
}

export function weightText(weight: number, digits = 2): string {
  const least = 10 ** -digits;
  return weight > 0 && weight < least / 2 ? `<${least}` : weight.toFixed(digits);
}

/** A count, as 10,000. */
export function countText(count: number): string {
  return count.toLocaleString("en");
}

/** Any number, with a real minus; small ones as 3.1e-8. */
export function numberText(value: number, digits = 3): string {
  const size = Math.abs(value);
  const text = size >= 10 ** -digits || size === 0 ? size.toFixed(size < 100 ? digits : 1) : size.toExponential(1);
  return value < 0 ? `−${text}` : text;
}

/** The keys of a row with the largest weights, in order; masked keys are left out. */
export function heaviest(row: Row, count: number): number[] {
  const order = Array.from(row.values.keys()).filter((key) => !row.masked?.[key]);
  return order.sort((a, b) => row.values[b] - row.values[a]).slice(0, count);
}

/** "*rivière* looks mostly at *river* (0.83), layer 4, head 2". */
export function Sentence() {
  const app = useApp();
  const { value: row, error } = app.row.value;
  return (
    <p class="sentence" aria-live="polite">
      {error ?? (row ? <SentenceText row={row} /> : app.wordHidden.value && `This ${app.recording.value?.manifest.noun} is hidden; choose another, or show special tokens.`)}
    </p>
  );
}

function SentenceText({ row }: { row: Row }) {
  const app = useApp();
  const kinds = new Set(app.recording.value?.manifest.attentions.map((each) => each.kind));
  const steps = app.recording.value?.manifest.steps ?? [];
  const [top] = heaviest(row, 1);
  const chosen = groupOf(row.keys, app.hover.value?.key ?? app.selection.key.value);
  const kind = kinds.size > 1 ? `${kindTitles[row.attention.kind].toLowerCase()} ` : "";
  const several = row.queries.length > 1;
  return (
    <>
      {row.queries.map((query, index) => (
        <>
          {index > 0 && (index === row.queries.length - 1 ? " and " : ", ")}
          <em>{query.name}</em>
        </>
      ))}
      {top === undefined ? (
        " cannot look at anything that is shown"
      ) : row.values[top] === 0 ? (
        ` ${several ? "together look" : "looks"} at nothing${row.outside > 0.0005 ? " that is shown" : ": all weights are 0"}`
      ) : (
        <>
          {several ? " together look mostly at " : " looks mostly at "}
          <em>{row.keys[top].name}</em> ({weightText(row.values[top])})
        </>
      )}
      , {kind}layer {row.attention.layer}, head {row.head + 1}
      {steps.length > 1 && `, after ${steps[row.step]} steps`}
      {chosen >= 0 && chosen !== top && row.values[top ?? chosen] !== 0 && (
        <span class="aside">
          {" "}
          · <em>{row.keys[chosen].name}</em> {row.masked?.[chosen] ? "is masked" : weightText(row.values[chosen])}
        </span>
      )}
      {row.outside > 0.0005 && (
        <span class="aside">
          {" "}
          · {weightText(row.outside)} is on hidden special tokens{app.selection.renormalise.value ? "; the rest is renormalised to 1" : ""}
        </span>
      )}
    </>
  );
}
