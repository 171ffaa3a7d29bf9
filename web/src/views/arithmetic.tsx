// Arithmetic: how one head computes one weight, in the model's own numbers, checked by computing it again.
import { useRef } from "preact/hooks";
import { useApp } from "../app";
import { farthest, keyOf, mixedOf, numpyScript, queryOf, valueOf } from "../arithmetic";
import { Copy } from "../copy";
import { CheckFormula, JoinedHeads, ProjectionFormulas, Of, OutputFormula, ScoreFormula, SoftmaxFormula } from "../formulas";
import { useLoaded } from "../loading";
import { Folded, Numbers } from "../numbers";
import type { Recording } from "../recording";
import { headName, kindTitles, numberText, weightText } from "../sentence";
import { reach, VectorStrip } from "../vector-strip";
import { loadCell, explainCell, type LoadedCell, type ArithmeticCell } from "../arithmetic-cell";
import type { Manifest } from "../types";
import { namesOf } from "../word-groups";
import "./arithmetic.css";
import { Output, Softmax } from "./arithmetic-row";

export function whyNoArithmetic({ attentions }: Manifest): string | null {
  if (!attentions.length) return "This model has no attention.";
  if (attentions.some((each) => each.arithmetic)) return null;
  return "This recording has no vectors; open the model itself: regard look TEXT -m RUN";
}

export function Arithmetic({ recording }: { recording: Recording }) {
  const app = useApp();
  const { selection } = app;
  const attention = app.attention.value;
  const head = selection.head.value;
  const query = selection.query.value;
  const there = attention?.arithmetic ?? false;
  const { value, error } = useLoaded(`${attention?.id} ${head} ${query}`, async () => (attention && there ? loadCell(recording, attention, head, query) : null));
  const before = useRef<LoadedCell | null>(null);
  if (value) before.current = value; // kept until the next one is there, so that nothing jumps
  if (!there) return <p class="soft">This recording has no vectors of this layer; open the model itself: regard look TEXT -m RUN</p>;
  if (error) return <p class="failure">{error}</p>;
  if (!before.current) return null;
  const cell = explainCell(before.current, selection.key.value);
  return (
    <div class="arithmetic">
      <Cell cell={cell} recording={recording} />
      <CheckLine cell={cell} />
      <ol>
        <Inputs cell={cell} />
        <Projections cell={cell} />
        <Score cell={cell} />
        <Step title="Softmax over the row" formula={<SoftmaxFormula />}>
          <Softmax cell={cell} />
        </Step>
        <Step
          title="Values, weighted"
          formula={
            <>
              <OutputFormula />
              {!cell.bare && <JoinedHeads heads={cell.attention.heads} />}
            </>
          }
        >
          <Output cell={cell} />
        </Step>
        <Check cell={cell} />
      </ol>
      <Everything cell={cell} />
    </div>
  );
}

function Step({ title, formula, children }: { title: string; formula: preact.ComponentChildren; children: preact.ComponentChildren }) {
  return (
    <li>
      <div class="how">
        <h3>{title}</h3>
        {formula}
      </div>
      <div class="what">{children}</div>
    </li>
  );
}

/** The selected cell; its two words can be changed here. */
function Cell({ cell, recording }: { cell: ArithmeticCell; recording: Recording }) {
  const { selection } = useApp();
  const { attention, head } = cell;
  const choice = (axis: "query" | "key", words: string[]) => (
    <select
      aria-label={axis === "query" ? "The word that looks" : "The word looked at"}
      value={selection[axis].value}
      onChange={(event) => selection.choose({ [axis]: Number(event.currentTarget.value) })}
    >
      {words.map((word, at) => (
        <option key={at} value={at}>
          {word}
        </option>
      ))}
    </select>
  );
  return (
    <div class="cell">
      <span>
        {choice("query", namesOf(recording.tokens(attention.queries)))} looks at {choice("key", cell.words)}
      </span>
      <span class="soft">
        {kindTitles[attention.kind]} {headName(attention, head)}
      </span>
      <Copy
        key={`${attention.id} ${head} ${cell.query} ${cell.key}`}
        title="Copy as NumPy"
        name="NumPy script"
        text={() => scriptOf(cell, recording)}
        said={(text) => `Copied, ${Math.ceil(text.length / 1000)} kB. It needs only NumPy.`}
      />
    </div>
  );
}

/** The script of the chosen cell. */
function scriptOf(cell: ArithmeticCell, recording: Recording): string {
  const title = `${cell.attention.id}, ${headName(cell.attention, cell.head)}: ${JSON.stringify(cell.looker)} looks at ${JSON.stringify(cell.words[cell.key])}`;
  return numpyScript(cell, `${title}\n${JSON.stringify(recording.manifest.title)}, recorded by regard. Needs only NumPy.`);
}

const difference = (value: number) => (value === 0 ? "0" : value.toExponential(1));

function CheckLine({ cell: { recomputed, row, key } }: { cell: ArithmeticCell }) {
  const { score, weight, output } = recomputed.difference;
  return (
    <p class={recomputed.far ? "failure" : "soft"} role="status" data-check>
      Check: weight recomputed {weightText(recomputed.weights[key], 4)}, the model's own {weightText(row.weights[key], 4)}, difference <span>{difference(weight)}</span>; the largest
      difference of score, weight and output is <span>{difference(Math.max(score, weight, output))}</span>.
      {recomputed.far && " That is more than rounding explains, so do not trust this account of the cell."}
    </p>
  );
}

function Inputs({ cell }: { cell: ArithmeticCell }) {
  const { from, looker, words, key } = cell;
  const scale = { kind: "signed" as const, limit: reach(...from) };
  return (
    <Step title="Input" formula={<p class="soft">The vectors that this attention reads: embeddings, or the output of earlier layers. Blue is negative, orange positive.</p>}>
      <VectorStrip name={<Of of="x" at="i" word={looker} />} label={`Input of ${looker}`} values={from[0]} scale={scale} />
      <VectorStrip name={<Of of="x" at="j" word={words[key]} />} label={`Input of ${words[key]}`} values={from[1]} scale={scale} />
    </Step>
  );
}

function Projections({ cell }: { cell: ArithmeticCell }) {
  const { attention, looker, words, key } = cell;
  const [q, k, v] = [queryOf(cell), keyOf(cell, key), valueOf(cell, key)];
  const scale = { kind: "signed" as const, limit: reach(q, k) };
  return (
    <Step title="Query, key and value" formula={<ProjectionFormulas attention={attention} bare={cell.bare} />}>
      <VectorStrip name={<Of of="q" at="i" word={looker} />} label={`Query of ${looker}`} values={q} scale={scale} />
      <VectorStrip name={<Of of="k" at="j" word={words[key]} />} label={`Key of ${words[key]}`} values={k} scale={scale} />
      <VectorStrip name={<Of of="v" at="j" word={words[key]} />} label={`Value of ${words[key]}`} values={v} scale={{ kind: "signed", limit: reach(v) }} />
      <p class="soft">
        {attention.position === "rope" && "Query and key are rotated to their positions (rope). "}
        {attention.groups > 1 && `Keys and values are shared by ${attention.groups} heads. `}
        {!cell.bare && "These numbers include the model's biases and norms, if it has any here."}
      </p>
    </Step>
  );
}

const LARGEST = 6;

/** Positions that are a bias of the score. Other biases, as those from pairs of residues, have no name. */
const BIASES: Partial<Record<string, string>> = { alibi: "ALiBi", "relative-bias": "relative position" };

function Score({ cell }: { cell: ArithmeticCell }) {
  const { attention, recomputed, row, allowed, key, words } = cell;
  const { scale, cap, kind } = attention.score;
  const additive = kind === "additive";
  const biased = BIASES[attention.position ?? ""];
  const { terms, sum, scaled } = recomputed;
  const { places, rest } = farthest(terms, LARGEST);
  const root = Math.abs(scale - attention.width ** -0.5) < 1e-9 ? ` (1/√${attention.width})` : "";
  const line = (name: string, value: number, strong = false) => (
    <tr class={strong ? "strong" : ""}>
      <th scope="row">{name}</th>
      <td>{numberText(value)}</td>
    </tr>
  );
  return (
    <Step title={additive ? "Energy" : "Score"} formula={<ScoreFormula attention={attention} />}>
      <VectorStrip
        name={additive ? "terms" : "products"}
        label={additive ? "Terms of the energy" : "Products of query and key"}
        values={terms}
        scale={{ kind: "signed", limit: reach(terms) }}
      />
      <table class="ledger">
        <caption class="unseen">The largest terms of the score, their sum, and the result</caption>
        <tbody>
          {places.map((at) => (
            <tr key={at}>
              <th scope="row">
                dim {at}: <Term cell={cell} at={at} />
              </th>
              <td>{signed(terms[at])}</td>
            </tr>
          ))}
          {terms.length > places.length && (
            <tr>
              <th scope="row">{terms.length - places.length} others together</th>
              <td>{signed(rest)}</td>
            </tr>
          )}
          {line(additive ? "their sum, the energy" : "their sum, q · k", sum, additive && !row.bias)}
          {!additive && line(`× the scale ${numberText(scale, 4)}${root}`, scaled, !row.bias && cap === null)}
          {cap !== null && line(`capped: ${cap} tanh(s / ${cap})`, row.scores[key], !row.bias)}
          {row.bias && line(`plus the bias of this pair, ${signed(row.bias[key])}${biased ? ` (${biased})` : ""}`, row.scores[key] + row.bias[key], true)}
          {allowed && (
            <tr>
              <th scope="row">{allowed[key] ? "the mask allows this key" : `the mask hides ${words[key]}: its weight is 0`}</th>
              <td>{allowed[key] ? "" : <span class="hatched" />}</td>
            </tr>
          )}
        </tbody>
      </table>
    </Step>
  );
}

const signed = (value: number) => (value < 0 ? numberText(value) : `+${numberText(value)}`);

function Term({ cell, at }: { cell: ArithmeticCell; at: number }) {
  const q = numberText(queryOf(cell)[at]);
  const other = keyOf(cell, cell.key)[at];
  const { energy } = cell.vectors;
  const k = numberText(Math.abs(other));
  return <span class="number">{energy ? `${numberText(energy[at])} × tanh(${q} ${other < 0 ? "−" : "+"} ${k})` : `${q} × ${numberText(other)}`}</span>;
}

function Check({ cell }: { cell: ArithmeticCell }) {
  const { recomputed, row, key } = cell;
  const own = mixedOf(cell);
  const far = farthest(recomputed.output.map((number, at) => number - own[at]), 1).places[0] ?? 0;
  const lines: [string, number, number, number][] = [
    ["score", recomputed.scores[key], row.scores[key], recomputed.difference.score],
    ["weight", recomputed.weights[key], row.weights[key], recomputed.difference.weight],
    [`output, farthest dim ${far}`, recomputed.output[far], own[far], recomputed.difference.output],
  ];
  return (
    <Step title="Check" formula={<CheckFormula />}>
      <table class="ledger">
        <thead>
          <tr>
            <td />
            <th scope="col">recomputed</th>
            <th scope="col">the model's own</th>
            <th scope="col">difference</th>
          </tr>
        </thead>
        <tbody>
          {lines.map(([name, here, model, apart]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>{numberText(here, 6)}</td>
              <td>{numberText(model, 6)}</td>
              <td>{difference(apart)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Step>
  );
}

function Everything({ cell }: { cell: ArithmeticCell }) {
  const { from, recomputed, key, words, looker } = cell;
  return (
    <Folded summary="All numbers as tables">
      {() => (
        <>
          <Numbers caption="Query and key" columns={{ [`q ${looker}`]: queryOf(cell), [`k ${words[key]}`]: keyOf(cell, key), term: recomputed.terms }} />
          <Numbers caption="Value and output" columns={{ [`v ${words[key]}`]: valueOf(cell, key), output: mixedOf(cell), recomputed: recomputed.output }} />
          <Numbers caption="Inputs" columns={{ [`query ${looker}`]: from[0], [`key ${words[key]}`]: from[1] }} />
        </>
      )}
    </Folded>
  );
}
