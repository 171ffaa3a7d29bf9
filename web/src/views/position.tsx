// Position: how the model encodes positions. Its table, the similarity of two positions, and one row of both.
import { useSignal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { useApp, useDrawing } from "../app";
import { Curve } from "../curve";
import { matrixSvg } from "../export";
import { useLoaded } from "../loading";
import { Matrix, type MatrixProps } from "../matrix";
import { Folded, Numbers } from "../numbers";
import type { Recording } from "../recording";
import { numberText } from "../sentence";
import { reach, VectorStrip } from "../vector-strip";
import type { Manifest, PositionInfo } from "../types";
import "./position.css";

const kinds: Record<PositionInfo["kind"], string> = {
  sinusoidal: "Sinusoidal",
  learned: "Learned",
  linear: "Linear",
  rope: "Rotary",
  alibi: "ALiBi, a bias by distance",
  "relative-bias": "Relative bias",
};

export function whyNoPositions(manifest: Manifest): string | null {
  if (manifest.positions.length) return null;
  if (manifest.steps.length) return "Training snapshots hold no positions; open the model itself: regard look TEXT -m RUN";
  const selfAttends = manifest.attentions.some((each) => each.queries === each.keys);
  if (selfAttends) return "This model has no position encoding: it knows the order only from its mask or from layers without attention.";
  return "This model has no position encoding: its recurrence carries the order.";
}

const isBias = (table: PositionInfo) => table.kind === "alibi" || table.kind === "relative-bias";
const numbered = (count: number) => Array.from({ length: count }, (_, at) => String(at));

/** The distance of a key from its query. */
function distance(table: PositionInfo, column: number): string {
  const away = column - (table.columns - 1) / 2;
  return away === 0 ? "the query itself" : `key ${Math.abs(away)} ${away < 0 ? "before" : "after"} the query`;
}

function dimension(table: PositionInfo, column: number): string {
  if (isBias(table)) return distance(table, column);
  const half = table.columns / 2;
  return table.kind === "rope" ? `${column < half ? "cosine" : "sine"} of pair ${column % half}` : `${table.columnLabel} ${column}`;
}

export function Position({ recording }: { recording: Recording }) {
  const tables = recording.manifest.positions;
  const chosen = useSignal(0);
  const number = Math.min(chosen.value, tables.length - 1);
  const table = tables[number];
  const { value, error } = useLoaded(String(number), () => Promise.all([recording.position(number), recording.similarity(number)]));
  if (error) return <p class="failure">{error}</p>;
  return (
    <div class="position">
      {tables.length > 1 && (
        <div class="choices" role="group" aria-label="Which positions">
          {tables.map((each, at) => (
            <button key={at} type="button" aria-pressed={at === number} onClick={() => (chosen.value = at)}>
              {each.name}
            </button>
          ))}
        </div>
      )}
      {value && <PositionTable key={number} table={table} numbers={value[0]} alike={value[1]} />}
    </div>
  );
}

function PositionTable({ table, numbers, alike }: { table: PositionInfo; numbers: Float32Array; alike: Float32Array }) {
  const app = useApp();
  const query = app.selection.query.value;
  const picked = useSignal<number | null>(null);
  useLayoutEffect(() => void (picked.value = null), [query]); // in a layout effect, before anything else can be picked
  const bias = isBias(table);
  const head = Math.min(app.selection.head.value, table.similarities - 1);
  const at = Math.min(picked.value ?? query, table.size - 1);
  const row = bias ? head : at;
  const square = table.size ** 2;
  const pairs = alike.subarray(head * square, (head + 1) * square);
  const vector = numbers.subarray(row * table.columns, (row + 1) * table.columns);
  const likeness = pairs.subarray(at * table.size, (at + 1) * table.size);
  const instead = "The slider above chooses a position, and the tables at the end have its numbers.";
  const own: MatrixProps = {
    label: `${kinds[table.kind]} positions: ${table.rows} of ${table.columns} numbers`,
    rows: numbered(table.rows),
    columns: numbered(table.columns),
    values: numbers,
    scale: { kind: "signed", limit: reach(numbers) },
    marked: { rows: [at], columns: [] },
    captions: [table.rowLabel, table.columnLabel],
    describe: (cell) => `${table.rowLabel} ${cell.row}, ${dimension(table, cell.column)}`,
    onPick: (cell) => (picked.value = cell.row),
    instead,
  };
  const both: MatrixProps = {
    label: bias ? `The bias of head ${head + 1} for each pair` : "Similarity of every two positions",
    rows: numbered(table.size),
    columns: numbered(table.size),
    values: pairs,
    scale: { kind: "signed", limit: reach(pairs) },
    marked: { rows: [at], columns: [] },
    captions: bias ? ["position of the query", "of the key"] : ["this position", "that position"],
    describe: (cell) => (bias ? `query ${cell.row}, key ${cell.column}` : `positions ${cell.row} and ${cell.column}`),
    onPick: (cell) => (picked.value = cell.row),
    instead,
  };
  useDrawing(() => matrixSvg(bias ? both : own, app.dark.value));
  return (
    <>
      <p class="sentence" aria-live="polite">
        {extremes(likeness, at, bias, head)}
      </p>
      <p class="soft">
        <strong>{kinds[table.kind]}.</strong> {table.note}
      </p>
      <label class="slider">
        {bias ? "Position of the query" : "Position"} <output class="number">{at}</output>
        <input type="range" min={0} max={table.size - 1} value={at} onInput={(event) => (picked.value = Number(event.currentTarget.value))} />
      </label>
      <div class="pair">
        <section>
          <h3>{bias ? `Each head, ${table.columnLabel}` : `The table: ${table.rows} positions, ${table.columns} numbers each`}</h3>
          {bias ? <Biases table={table} numbers={numbers} /> : <Matrix {...own} />}
          <Curve title={bias ? `Head ${head + 1} by distance` : `Position ${at}: its numbers`} values={vector} name={(place) => dimension(table, place)} />
        </section>
        <section>
          <h3>{bias ? `Head ${head + 1}: the bias of each pair` : "Similarity of two positions"}</h3>
          <Matrix {...both} />
          <Curve
            title={bias ? `Head ${head + 1}, from position ${at} to each` : `Position ${at}: similarity to each`}
            values={likeness}
            at={at}
            name={(place) => `position ${place}`}
          />
        </section>
      </div>
      <Folded summary="These numbers as tables">
        {() => (
          <>
            <Numbers caption={bias ? "By distance" : `Position ${at}`} columns={{ [bias ? "bias" : "number"]: vector }} name={(place) => dimension(table, place)} />
            <Numbers caption={bias ? `From position ${at}` : `Similarity to position ${at}`} columns={{ [bias ? "bias" : "similarity"]: likeness }} name={(place) => `position ${place}`} />
          </>
        )}
      </Folded>
    </>
  );
}

/** The sentence: which positions are most and least similar to the chosen one, or get the largest and smallest bias. */
function extremes(likeness: Float32Array, at: number, bias: boolean, head: number): string {
  const others = Array.from(likeness.keys())
    .filter((place) => bias || place !== at)
    .sort((a, b) => likeness[b] - likeness[a]);
  const described = (place: number) => `${place} (${numberText(likeness[place], 2)})`;
  if (others.length < 2) return "There is only one position.";
  const [first, last] = [described(others[0]), described(others[others.length - 1])];
  if (bias) return `From position ${at}, head ${head + 1} adds most to position ${first}, least to ${last}`;
  return `Position ${at} is most like position ${first}, least like ${last}`;
}

/** One strip per head; a click chooses the head. */
function Biases({ table, numbers }: { table: PositionInfo; numbers: Float32Array }) {
  const { selection } = useApp();
  const scale = { kind: "signed" as const, limit: reach(numbers) };
  return (
    <div class="biases">
      {numbered(table.rows).map((_, head) => (
        <VectorStrip
          key={head}
          name={
            <button type="button" aria-pressed={head === selection.head.value} onClick={() => selection.choose({ head })}>
              head {head + 1}
            </button>
          }
          label={`Bias of head ${head + 1} by distance`}
          values={numbers.subarray(head * table.columns, (head + 1) * table.columns)}
          scale={scale}
          cell={(column) => distance(table, column)}
          onPick={() => selection.choose({ head })}
        />
      ))}
    </div>
  );
}
