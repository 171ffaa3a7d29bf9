// States: a recurrent layer over time. Its state and its gates as heat maps, units (or heads) down and tokens across.
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { useApp, useDrawing } from "../app";
import { matrixSvg } from "../export";
import { useKept, useLoaded } from "../loading";
import { Matrix, type MatrixProps } from "../matrix";
import { Folded, Numbers } from "../numbers";
import type { Recording } from "../recording";
import { numberText } from "../sentence";
import type { Manifest, RecurrenceInfo, SignalInfo } from "../types";
import { orderUnits, transpose, valuesAt, type UnitOrder } from "../unit-order";
import { useToken } from "../use-token";
import { reach } from "../vector-strip";
import { groupTokens, namesOf, readable } from "../word-groups";
import { WordLine } from "../word-line";
import "./states.css";

export function whyNoStates({ recurrences, steps }: Manifest): string | null {
  if (recurrences.length) return null;
  if (steps.length) return "Training snapshots hold no states; open the model itself: regard look TEXT -m RUN";
  return "This model has no recurrent layer.";
}

const orders: Record<UnitOrder, string> = { number: "number", value: "value at this token", change: "change over time" };

export function States({ recording }: { recording: Recording }) {
  const { recurrences } = recording.manifest;
  const layer = useSignal(recurrences[0].id);
  const mine = recurrences.find((each) => each.id === layer.value) ?? recurrences[0];
  const name = useSignal(mine.signals[0].name);
  const number = Math.max(0, mine.signals.findIndex((each) => each.name === name.value));
  const { value, error } = useLoaded(`${mine.id} ${number}`, async () => ({ mine, number, values: await recording.signal(mine.id, number) }));
  const shown = useKept(value);
  return (
    <div class="states">
      {recurrences.length > 1 && (
        <div class="choices" role="group" aria-label="Layer">
          {recurrences.map((each) => (
            <button key={each.id} type="button" aria-pressed={each === mine} onClick={() => (layer.value = each.id)}>
              {each.sequence} L{each.layer}
              {each.backward && " ←"}
              {each.backward && <span class="unseen"> (backward)</span>}
            </button>
          ))}
        </div>
      )}
      <div class="choices" role="group" aria-label="State or gate">
        {mine.signals.map((each, at) => (
          <button key={each.name} type="button" aria-pressed={at === number} title={each.about} onClick={() => (name.value = each.name)}>
            {each.name}
          </button>
        ))}
        <span class="soft">
          {mine.cell}, {mine.width} {mine.unit}s; {mine.signals[number].about}
        </span>
      </div>
      {error ? <p class="failure">{error}</p> : shown && <Signal recording={recording} layer={shown.mine} signal={shown.mine.signals[shown.number]} values={shown.values} />}
    </div>
  );
}

function Signal({ recording, layer, signal, values }: { recording: Recording; layer: RecurrenceInfo; signal: SignalInfo; values: Float32Array }) {
  const app = useApp();
  const order = useSignal<UnitOrder>("number");
  const [token, choose] = useToken(layer.sequence, layer.rows - 1);
  const tokens = recording.tokens(layer.sequence);
  const at = Math.min(token, layer.rows - 1);
  const { width, unit } = layer;
  const units = useMemo(() => orderUnits(values, width, at, order.value), [values, width, order.value === "value" ? at : -1, order.value]);
  const turned = useMemo(() => transpose(values, width, units), [values, units]);
  const now = valuesAt(values, width, at);
  const names = namesOf(tokens);
  const heat: MatrixProps = {
    label: `${signal.about}: ${width} ${unit}s over ${layer.rows} tokens`,
    rows: units.map((each) => String(unitNumber(layer, each))),
    columns: tokens.map((each) => readable(each.text)),
    values: turned,
    scale: signal.gate ? { kind: "weight", root: app.selection.root.value } : { kind: "signed", limit: reach(values) },
    positions: { rows: order.value === "number" ? units.map((each) => unitNumber(layer, each)) : [], columns: tokens.map((_, at) => at + 1) },
    wide: true,
    marked: { rows: signal.gate ? [] : [units.indexOf(largest(now))], columns: [at] },
    captions: [unit, layer.backward ? "token (this layer reads from the end)" : "token"],
    describe: (cell) => `${unitName(layer, units[cell.row])} at ${names[cell.column]}`,
    onPick: (cell) => choose(cell.column),
    instead: "The line above chooses a token, and the table at the end has its numbers.",
  };
  useDrawing(() => matrixSvg(heat, app.dark.value));
  return (
    <>
      <p class="sentence" aria-live="polite">
        {describe(layer, signal, now, names[at])}
      </p>
      <WordLine label={`Tokens of ${layer.sequence}`} groups={groupTokens(tokens, false, false)} chosen={at} onPick={choose} strength={(word) => mean(valuesAt(values, width, word)) / (reach(values) || 1)} />
      <div class="choices" role="group" aria-label={`Order of the ${unit}s`}>
        <span class="soft">Sort {unit}s by</span>
        {(Object.keys(orders) as UnitOrder[]).map((each) => (
          <button key={each} type="button" aria-pressed={order.value === each} onClick={() => (order.value = each)}>
            {orders[each]}
          </button>
        ))}
      </div>
      <Matrix {...heat} />
      <Folded summary="These numbers as a table">{() => <Numbers caption={`${signal.about} at ${names[at]}`} columns={{ [signal.name]: now }} name={(at) => unitName(layer, at)} />}</Folded>
    </>
  );
}

/** The mean size of the numbers. */
function mean(values: Float32Array): number {
  return values.reduce((total, value) => total + Math.abs(value), 0) / Math.max(1, values.length);
}

/** Where the number farthest from 0 is. */
function largest(values: Float32Array): number {
  return values.reduce((best, value, at) => (Math.abs(value) > Math.abs(values[best]) ? at : best), 0);
}

/** Heads are counted from 1, as everywhere in the page. */
function unitNumber({ unit }: RecurrenceInfo, at: number): number {
  return unit === "head" ? at + 1 : at;
}

function unitName(layer: RecurrenceInfo, at: number): string {
  return `${layer.unit} ${unitNumber(layer, at)}`;
}

function describe(layer: RecurrenceInfo, signal: SignalInfo, now: Float32Array, token: string) {
  const what = signal.about.split(":")[0];
  if (signal.gate) {
    const open = now.filter((value) => value > 0.5).length;
    return (
      <>
        At <em>{token}</em>, the {what} is open (above 0.5) in {open} of {now.length} {layer.unit}s
      </>
    );
  }
  const most = largest(now);
  return (
    <>
      At <em>{token}</em>, the {what} is farthest from 0 in {unitName(layer, most)} ({numberText(now[most], 2)})
    </>
  );
}
