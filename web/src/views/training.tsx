// Training: how heads developed. A scrubber over the recorded steps, the chosen head at that step, and the entropy of every head
// from the first step to the last.
import { useRef, useState } from "preact/hooks";
import { useApp, useDrawing } from "../app";
import { changeOf, entropyCurves, mostChanged, placeOf, ticksOf, type EntropyCurve } from "../entropy-curves";
import { elementSvg } from "../export";
import { Matrix } from "../matrix";
import { Folded, Numbers } from "../numbers";
import type { Recording } from "../recording";
import { headName, kindTitles } from "../sentence";
import { useWidth } from "../use-width";
import type { Manifest, StatisticName } from "../types";
import { headMatrix } from "./look";
import "./training.css";

export function whyNoSteps({ steps }: Manifest): string | null {
  return steps.length > 1 ? null : "This recording has no training snapshots; training saves them in the run folder: regard look -m RUN";
}

export function Training({ recording }: { recording: Recording }) {
  const app = useApp();
  const { selection } = app;
  const { manifest } = recording;
  const curves = entropyCurves(manifest);
  const chosen = curves.find((each) => each.attention.id === selection.attention.value && each.head === selection.head.value) ?? curves[0];
  const { value: picture, error } = app.picture.value;
  const drawn = picture ?? { attention: chosen.attention, head: chosen.head, step: selection.step.value };
  return (
    <div class="training">
      <Scrubber steps={manifest.steps} />
      <div class="both">
        <section>
          <h3>
            {name(drawn)} at step {manifest.steps[drawn.step]}
          </h3>
          {error ? <p class="failure">{error}</p> : picture && <Matrix {...headMatrix(app, picture)} />}
        </section>
        <section>
          <h3>Entropy of every head, in bits</h3>
          <Lines curves={curves} chosen={chosen} steps={manifest.steps} />
          <EntropyNote curves={curves} chosen={chosen} steps={manifest.steps} />
          <Folded summary={`${name(chosen)} in numbers`}>{() => <Statistics chosen={chosen} steps={manifest.steps} />}</Folded>
        </section>
      </div>
    </div>
  );
}

const name = ({ attention, head }: Pick<EntropyCurve, "attention" | "head">) => `${attention.kind === "self" ? "" : `${kindTitles[attention.kind]} `}${headName(attention, head)}`;

function Scrubber({ steps }: { steps: number[] }) {
  const app = useApp();
  const { selection, playing } = app;
  const at = selection.step.value;
  const go = (step: number) => {
    playing.value = false;
    selection.choose({ step });
  };
  return (
    <div class="scrubber">
      <button type="button" aria-pressed={playing.value} onClick={() => (playing.value = !playing.value)}>
        {playing.value ? "Stop" : "Play"} <kbd aria-hidden="true">Space</kbd>
      </button>
      <label>
        <span class="unseen">Training step</span>
        <input type="range" min={0} max={steps.length - 1} step={1} value={at} aria-valuetext={`step ${steps[at]}`} onInput={(event) => go(Number(event.currentTarget.value))} />
      </label>
      <span class="choices">
        <button type="button" aria-label="Previous step" disabled={at === 0} onClick={() => go(at - 1)}>
          [
        </button>
        <button type="button" aria-label="Next step" disabled={at === steps.length - 1} onClick={() => go(at + 1)}>
          ]
        </button>
      </span>
      <output class="number">
        step <strong>{steps[at]}</strong> of {steps[steps.length - 1]}
      </output>
    </div>
  );
}

const bits = (value: number | null | undefined) => (value == null ? "unknown" : value.toFixed(1));

function EntropyNote({ curves, chosen, steps }: { curves: EntropyCurve[]; chosen: EntropyCurve; steps: number[] }) {
  const { selection } = useApp();
  const at = selection.step.value;
  const last = steps.length - 1;
  const most = mostChanged(curves);
  const change = most && changeOf(most);
  return (
    <p aria-live="polite">
      {name(chosen)}: entropy {bits(chosen.entropy[0])} bits at step {steps[0]}
      {at > 0 && at < last && `, ${bits(chosen.entropy[at])} at step ${steps[at]}`}, {bits(chosen.entropy[last])} at step {steps[last]}.{" "}
      {most && most !== chosen && change != null && (
        <>
          Changed most:{" "}
          <button type="button" class="plain" onClick={() => selection.choose({ attention: most.attention.id, head: most.head })}>
            {name(most)}
          </button>{" "}
          ({bits(most.entropy[0])} to {bits(most.entropy[last])}).
        </>
      )}
      {most === chosen && "No head changed more."}
    </p>
  );
}

const HEIGHT = 300;
const PAD = { left: 30, right: 14, top: 14, bottom: 40 };

/** All heads as thin lines, the chosen one bold with its name. Hovering names a line, a click chooses it and the step. */
function Lines({ curves, chosen, steps }: { curves: EntropyCurve[]; chosen: EntropyCurve; steps: number[] }) {
  const { selection } = useApp();
  const [frame, width] = useWidth<HTMLDivElement>();
  const svg = useRef<SVGSVGElement>(null);
  const [under, setUnder] = useState<{ curve: EntropyCurve; at: number } | null>(null);
  useDrawing(() => (svg.current ? elementSvg(svg.current) : ""));
  const last = steps[steps.length - 1];
  const most = Math.max(0.5, ...curves.flatMap((curve) => curve.entropy.map((value) => value ?? 0))) * 1.05;
  const stride = Math.max(1, Math.ceil(most / 5));
  const inner = width - PAD.left - PAD.right;
  const x = (step: number) => PAD.left + placeOf(step, last) * inner;
  const y = (value: number) => HEIGHT - PAD.bottom - (value / most) * (HEIGHT - PAD.top - PAD.bottom);
  const path = ({ entropy }: EntropyCurve) =>
    entropy.map((value, at) => (value === null ? "" : `${at && entropy[at - 1] !== null ? "L" : "M"}${x(steps[at]).toFixed(1)} ${y(value).toFixed(1)}`)).join("");
  const nearest = (event: MouseEvent) => {
    const box = svg.current?.getBoundingClientRect();
    if (!box) return null;
    const from = (at: number) => Math.abs(x(steps[at]) - (event.clientX - box.left));
    const at = steps.reduce((best, _, each) => (from(each) < from(best) ? each : best), 0);
    const gap = (curve: EntropyCurve) => Math.abs(y(curve.entropy[at] ?? Infinity) - (event.clientY - box.top));
    return { curve: curves.reduce((best, each) => (gap(each) < gap(best) ? each : best)), at };
  };
  const pick = (event: MouseEvent) => {
    const found = nearest(event);
    if (found) selection.choose({ attention: found.curve.attention.id, head: found.curve.head, step: found.at });
  };
  const now = selection.step.value;
  const end = chosen.entropy[now];
  const label = (curve: EntropyCurve, at: number, kind: string) => {
    const value = curve.entropy[at];
    if (value === null) return null;
    const late = x(steps[at]) > width / 2;
    return (
      <text class={kind} x={x(steps[at]) + (late ? -8 : 8)} y={Math.max(PAD.top + 6, y(value) - 9)} text-anchor={late ? "end" : "start"}>
        {name(curve)} {value.toFixed(2)}
      </text>
    );
  };
  return (
    <div class="lines" ref={frame}>
      {width > 0 && (
        <svg
          ref={svg}
          width={width}
          height={HEIGHT}
          role="img"
          aria-label={`Entropy of ${curves.length} heads over ${steps.length} steps; ${name(chosen)} from ${bits(chosen.entropy[0])} to ${bits(chosen.entropy[steps.length - 1])} bits. The table below has its numbers.`}
          onMouseMove={(event) => setUnder(nearest(event))}
          onMouseLeave={() => setUnder(null)}
          onClick={pick}
        >
          {Array.from({ length: Math.floor(most / stride) + 1 }, (_, at) => at * stride).map((value) => (
            <g key={value} class="axis">
              <path d={`M${PAD.left} ${y(value)}H${width - PAD.right}`} />
              <text x={PAD.left - 6} y={y(value) + 4} text-anchor="end">
                {value}
              </text>
            </g>
          ))}
          {ticksOf(last, 56 / Math.max(56, inner)).map((step) => (
            <text key={step} class="axis" x={x(step)} y={HEIGHT - PAD.bottom + 18} text-anchor={step === last ? "end" : "middle"}>
              {step}
            </text>
          ))}
          <text class="axis" x={PAD.left} y={HEIGHT - 4}>
            training step, on a logarithmic scale →
          </text>
          {curves.map((curve, at) => (
            <path key={at} class={curve.attention.id === chosen.attention.id ? "head-curve near" : "head-curve"} d={path(curve)} />
          ))}
          <path class="now" d={`M${x(steps[now])} ${PAD.top}V${HEIGHT - PAD.bottom}`} />
          {under && under.curve !== chosen && <path class="head-curve pointed" d={path(under.curve)} />}
          <path class="head-curve chosen" d={path(chosen)} />
          {end !== null && end !== undefined && <circle cx={x(steps[now])} cy={y(end)} r={4.5} />}
          {under && under.curve !== chosen ? label(under.curve, under.at, "pointed") : label(chosen, now, "chosen")}
        </svg>
      )}
    </div>
  );
}

const columns: [StatisticName, string][] = [
  ["entropy", "entropy"],
  ["distance", "distance"],
  ["previous", "on the previous token"],
  ["first", "on the first token"],
];

function Statistics({ chosen, steps }: { chosen: EntropyCurve; steps: number[] }) {
  const numbers = columns.map(([statistic, title]) => [title, steps.map((_, at) => chosen.attention.statistics[statistic][at]?.[chosen.head])] as const);
  const there = numbers.filter((column): column is [string, number[]] => column[1].every((value) => value != null));
  return <Numbers caption={`${name(chosen)}, by step`} columns={Object.fromEntries(there)} name={(at) => String(steps[at])} />;
}
