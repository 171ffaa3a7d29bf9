// Image: which patches a patch, or the class token, looks at; every head of a layer, drawn over the image.
import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { useApp, useDrawing } from "../app";
import { canvasSvg } from "../export";
import { useLoaded } from "../loading";
import { most, Overlay, type OverlayProps, type Patches } from "../overlay";
import type { Recording } from "../recording";
import { headName, weightText } from "../sentence";
import { RowTable } from "../row-table";
import type { Answer, AttentionInfo, Manifest } from "../types";
import "./image.css";

export function whyNoImage({ image, attentions }: Manifest): string | null {
  return image !== null && attentions.length > 0 ? null : "This model does not read images.";
}

/** The row of one query in every head of a layer, and in the rollout. */
interface Rows {
  attention: AttentionInfo;
  query: number;
  heads: Float32Array[];
  rollout: Float32Array | null;
}

async function rowsOf(recording: Recording, attention: AttentionInfo, query: number, step: number): Promise<Rows> {
  const all = Array.from({ length: attention.heads }, (_, head) => recording.weightRow(attention, head, query, step));
  const rollout = recording.manifest.rollout ? await recording.rollout() : null;
  const heads = await Promise.all(all);
  return { attention, query, heads, rollout: rollout && rollout.subarray(query * attention.columns, (query + 1) * attention.columns) };
}

/** "row 3, column 4", counted from 1. */
function place({ columns }: Patches, patch: number): string {
  return `row ${Math.floor(patch / columns) + 1}, column ${(patch % columns) + 1}`;
}

export function Image({ recording }: { recording: Recording }) {
  const app = useApp();
  const { selection } = app;
  const { image: patches, answers } = recording.manifest;
  const attention = app.attention.value;
  const query = selection.query.value;
  const step = selection.step.value;
  const opacity = useSignal(0.65);
  const { value: picture, error: trouble } = useLoaded("image", async () => createImageBitmap(await recording.image()));
  const { value: loaded, error } = useLoaded(`${attention?.id} ${query} ${step}`, async () => attention && rowsOf(recording, attention, query, step));
  const before = useRef<Rows | null>(null);
  if (loaded) before.current = loaded; // kept until the next one is there, so that nothing jumps
  const rows = before.current;
  if (trouble || error) return <p class="failure">{trouble ?? error}</p>;
  if (!picture || !rows || !patches) return null;
  const head = Math.min(selection.head.value, rows.heads.length - 1);
  const common = { picture, patches, opacity: opacity.value, query: rows.query };
  return (
    <div class="image">
      <div class="large">
        <Large {...common} weights={rows.heads[head]} label={headName(rows.attention, head)} />
        <label class="slider">
          Opacity of the weights
          <input type="range" min={0} max={1} step={0.05} value={opacity.value} onInput={(event) => (opacity.value = Number(event.currentTarget.value))} />
        </label>
        <RowTable />
      </div>
      <div class="others">
        {answers.map((answer) => (
          <Answers key={answer.question} answer={answer} />
        ))}
        <section>
          <h3>All heads of layer {rows.attention.layer}, each scaled to its largest weight</h3>
          <div class="tiles">
            {rows.heads.map((weights, at) => (
              <button key={at} type="button" aria-pressed={at === head} onClick={() => selection.choose({ head: at })}>
                <Overlay {...common} weights={weights} size={264} aria-hidden="true" />
                <span>
                  <strong>{headName(rows.attention, at)}</strong> <span class="soft number">up to {weightText(most(weights, patches), 3)}</span>
                </span>
              </button>
            ))}
          </div>
        </section>
        {rows.rollout && (
          <section>
            <h3>Rollout through all layers</h3>
            <div class="rollout">
              <Overlay {...common} weights={rows.rollout} size={264} role="img" aria-label={`Rollout: patches up to ${weightText(most(rows.rollout, patches), 3)}`} />
              <p class="soft">
                derived (Abnar &amp; Zuidema 2020), not the weight of any head: the mean of the heads of each layer, averaged with the identity for the residual
                connection, and multiplied through all layers; up to {weightText(most(rows.rollout, patches), 3)}.
              </p>
            </div>
          </section>
        )}
      </div>
    </div>
  );
}

/** The chosen head: a click or an arrow key chooses the patch that looks. */
function Large({ label, ...props }: Omit<OverlayProps, "size" | "under" | "canvas"> & { label: string }) {
  const app = useApp();
  const canvas = useRef<HTMLCanvasElement>(null);
  const under = useSignal<number | null>(null);
  const { patches, weights, query } = props;
  const { rows, columns, first } = patches;
  useDrawing(() => (canvas.current ? canvasSvg(canvas.current) : ""));
  const patchAt = (event: MouseEvent) => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * columns);
    const row = Math.floor(((event.clientY - box.top) / box.height) * rows);
    return Math.max(0, Math.min(rows - 1, row)) * columns + Math.max(0, Math.min(columns - 1, column));
  };
  const point = (patch: number | null) => {
    under.value = patch;
    app.hover.value = patch === null ? null : { query, key: first + patch };
  };
  const press = (event: KeyboardEvent) => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!move) return;
    event.preventDefault();
    const middle = Math.floor(rows / 2) * columns + Math.floor(columns / 2);
    const patch = app.selection.query.value - first; // the drawn row may still belong to an earlier key press
    const row = Math.max(0, Math.min(rows - 1, Math.floor(patch / columns) + move[0]));
    const column = Math.max(0, Math.min(columns - 1, (patch % columns) + move[1]));
    app.pick(first + (patch < 0 ? middle : row * columns + column), null, false);
  };
  const onToken = weights.subarray(0, first).reduce((sum, weight) => sum + weight, 0);
  const looker = query < first ? "the class token" : `the patch in ${place(patches, query - first)}`;
  return (
    <>
      <div class="choices" role="group" aria-label="Query">
        {Array.from({ length: first }, (_, at) => (
          <button key={at} type="button" aria-pressed={query === at} onClick={() => app.pick(at, null, false)}>
            class token
          </button>
        ))}
        <span class="soft">{query < first ? "looks …; click a patch to choose another one that looks" : `${looker} looks …`}</span>
      </div>
      <Overlay
        {...props}
        size={960}
        lines
        under={under.value}
        canvas={canvas}
        role="img"
        tabIndex={0}
        aria-label={`${label}: where ${looker} looks, over the picture. Arrow keys choose the patch that looks; the table has the numbers.`}
        onMouseMove={(event) => point(patchAt(event))}
        onMouseLeave={() => point(null)}
        onClick={(event) => app.pick(first + patchAt(event), null, false)}
        onKeyDown={press}
      />
      <p class="soft number">
        {under.value !== null
          ? `${place(patches, under.value)}: ${weightText(weights[first + under.value], 4)}`
          : `${label}: yellow is ${weightText(most(weights, patches), 3)}${first > 0 ? `; ${weightText(onToken)} is on the class token` : ""}`}
      </p>
    </>
  );
}

/** How the model classifies the image. */
function Answers({ answer }: { answer: Answer }) {
  return (
    <table class="row answers">
      <caption>{answer.question}</caption>
      <tbody>
        {answer.guesses.map((guess, at) => (
          <tr key={at}>
            <th scope="row">{guess.text}</th>
            <td>
              <span class="bar" style={{ width: `calc((100% - 52px) * ${guess.probability})` }} />
              <span class="number">{weightText(guess.probability, 3)}</span>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
