// Compare: the chosen head beside another head, another recording or another training step, and their difference.
import { useApp, useDrawing } from "../app";
import { difference, largest, type Difference } from "../compare";
import { matrixSvg } from "../export";
import { useKept, useLoaded } from "../loading";
import { Matrix, type MatrixProps } from "../matrix";
import { otherSide, readPartner, useOther, writePartner, type Partner, type Side } from "../comparison-side";
import { paint, type Picture } from "../picture";
import type { Recording } from "../recording";
import { headName, kindTitles, numberText, weightText } from "../sentence";
import type { AttentionInfo } from "../types";
import { groupOf } from "../word-groups";
import "./compare.css";
import { axisOf, headMatrix } from "./look";

const LINES = 8;
/** Heads with at most this many keys fit three in a row. */
const FEW = 16;

export function Compare({ recording }: { recording: Recording }) {
  const app = useApp();
  const { selection } = app;
  const choice = selection.choice.value;
  const partner = readPartner(choice.partner);
  const { value: other, error } = useOther(recording, partner.recording);
  const side = other?.manifest.attentions.length ? otherSide(partner, choice, other.manifest, other === recording) : null;
  const how = { merge: choice.merge, hide: choice.hide, renormalise: choice.renormalise };
  const { value, error: trouble } = useLoaded(JSON.stringify([other?.id, side, how]), async () => {
    const attention = side && other?.attention(side.attention);
    return other && attention ? paint(other, attention, side.head, side.step, how) : null;
  });
  const there = useKept(value);
  const { value: here, error: own } = app.picture.value;
  const why = error ?? trouble ?? own ?? (other && !side ? "That recording has no attention; choose another." : null);
  return (
    <div class="compare">
      <Choose recording={recording} other={other} partner={partner} side={side} />
      {why ? <p class="failure">{why}</p> : here && there && <Both here={here} there={there} />}
    </div>
  );
}

interface ChooseProps {
  recording: Recording;
  other: Recording | null;
  partner: Partner;
  side: Side | null;
}

/** Chooses what the selection is compared with. */
function Choose({ recording, other, partner, side }: ChooseProps) {
  const { selection, choices } = useApp();
  const change = (to: Partial<Partner>) => selection.choose({ partner: writePartner({ ...partner, ...(side ?? {}), ...to }) });
  const manifest = other?.manifest;
  const attention = side && other?.attention(side.attention);
  const swap = () => {
    const { attention: id, head, step, recording: own } = selection.choice.peek();
    if (!other || !side) return;
    const back = other === recording ? "" : own;
    selection.choose({ recording: other.id, ...side, partner: writePartner({ recording: back, attention: id, head, step, word: null }) });
  };
  return (
    <div class="against" role="group" aria-label="Compare with">
      {choices.value.length > 1 && (
        <Pick
          title="Compare with"
          value={partner.recording || recording.id}
          options={choices.value.map((each) => [each.id, each.id === recording.id ? "this recording" : `${each.title}: ${each.text || each.model}`])}
          onPick={(id) => selection.choose({ partner: writePartner({ ...readPartner(""), recording: id === recording.id ? "" : id }) })}
        />
      )}
      {manifest && side && attention && (
        <>
          <Pick title="Layer" value={side.attention} options={manifest.attentions.map((each) => [each.id, attentionName(each)])} onPick={(id) => change({ attention: id })} />
          <Pick title="Head" value={String(side.head)} options={Array.from({ length: attention.heads }, (_, head) => [String(head), `H${head + 1}`])} onPick={(head) => change({ head: Number(head) })} />
          {manifest.steps.length > 1 && (
            <Pick title="Step" value={String(side.step)} options={manifest.steps.map((step, at) => [String(at), String(step)])} onPick={(step) => change({ step: Number(step) })} />
          )}
          <button type="button" onClick={swap}>
            Swap
          </button>
        </>
      )}
    </div>
  );
}

function Pick({ title, value, options, onPick }: { title: string; value: string; options: [string, string][]; onPick(value: string): void }) {
  return (
    <label class="field">
      <span>{title}</span>
      <select value={value} onChange={(event) => onPick(event.currentTarget.value)}>
        {options.map(([name, text]) => (
          <option key={name} value={name}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

const attentionName = (attention: AttentionInfo) => `${kindTitles[attention.kind]}, layer ${attention.layer}`;

/** The name of a side: its head, and whatever differs from the other side. */
function nameOf(side: Picture, other: Picture): string {
  const kind = side.attention.kind === other.attention.kind ? "" : `${kindTitles[side.attention.kind]} `;
  const head = `${kind}${headName(side.attention, side.head)}`;
  const step = side.step !== other.step || side.recording !== other.recording ? side.recording.manifest.steps[side.step] : undefined;
  const { title, text } = side.recording.manifest;
  const from = side.recording === other.recording ? "" : title === other.recording.manifest.title ? ` of “${shortened(text)}”` : ` of ${title}`;
  return `${head}${from}${step === undefined ? "" : ` at step ${step}`}`;
}

const shortened = (text: string) => ([...text].length > 28 ? `${[...text].slice(0, 27).join("")}…` : text);

function Both({ here, there }: { here: Picture; there: Picture }) {
  const app = useApp();
  const names: [string, string] = [nameOf(here, there), nameOf(there, here)];
  const found = difference(here, there);
  const left = headMatrix(app, here);
  const right: MatrixProps = { ...left, label: `Heat map of ${names[1]}`, ...axisOf(there), values: there.values, masked: there.masked };
  if (!found) Object.assign(right, { marked: undefined, onHover: undefined, onPick: undefined });
  const middle: MatrixProps | null = found && { ...left, label: `${names[0]} minus ${names[1]}`, values: found.values, masked: found.masked, scale: { kind: "signed", limit: found.limit || 1 } };
  useDrawing(() => matrixSvg(middle ?? left, app.dark.value));
  return (
    <>
      {found ? <Summary here={here} there={there} names={names} found={found} /> : <DifferentSizes here={here} there={there} />}
      <div class={here.keys.length <= FEW && there.keys.length <= FEW ? "sides few" : "sides"}>
        <section>
          <h3>{names[0]}</h3>
          <Matrix {...left} />
        </section>
        <section>
          <h3>{names[1]}</h3>
          <Matrix {...right} />
        </section>
        {middle && found && (
          <section>
            <h3>Their difference, up to {weightText(found.limit)}</h3>
            <Matrix {...middle} />
            <p class="soft">
              Orange: more in {names[0]}. Blue: more in {names[1]}.
            </p>
          </section>
        )}
        {found && found.limit > 0 && <Largest here={here} there={there} names={names} found={found} />}
      </div>
    </>
  );
}

function DifferentSizes({ here, there }: { here: Picture; there: Picture }) {
  const size = (side: Picture) => `${side.queries.length} × ${side.keys.length}`;
  return (
    <p class="sentence" aria-live="polite">
      One has {size(here)} tokens, the other {size(there)}, so their cells cannot be compared.
    </p>
  );
}

interface FoundProps {
  here: Picture;
  there: Picture;
  names: [string, string];
  found: Difference;
}

/** "*rivière* → *river*: 0.83 in L2.H1, 0.10 in L3.H4": the largest difference of the chosen word, or of all if that has none. */
function Summary({ here, there, names, found }: FoundProps) {
  const { selection, hover } = useApp();
  const columns = here.keys.length;
  const row = groupOf(here.queries, hover.value?.query ?? selection.query.value);
  const [own] = row < 0 ? [] : largest(found.values, 1, row * columns, (row + 1) * columns);
  const at = own ?? largest(found.values, 1)[0];
  return (
    <>
      <p class="sentence" aria-live="polite">
        {at === undefined ? (
          "The two are the same."
        ) : (
          <>
            <em>{here.queries[Math.floor(at / columns)].name}</em> → <em>{here.keys[at % columns].name}</em>: {weightText(here.values[at], 3)} in {names[0]}, {weightText(there.values[at], 3)} in {names[1]}
            <span class="aside"> · {own === undefined ? "the largest difference" : `the largest difference of this ${here.recording.manifest.noun}`}</span>
          </>
        )}
      </p>
      {!found.same && <p class="note">The two texts have the same length but different words: cells are compared by position.</p>}
      {(here.pooled || there.pooled) && <p class="note">These inputs are long: each cell is the largest weight of a block of tokens.</p>}
    </>
  );
}

function Largest({ here, there, names, found }: FoundProps) {
  const app = useApp();
  const columns = here.keys.length;
  const chosen = groupOf(here.queries, app.selection.query.value) * columns + groupOf(here.keys, app.selection.key.value);
  return (
    <section>
      <table class="ledger">
        <caption>The largest differences</caption>
        <thead>
          <tr>
            <th scope="col">
              {here.recording.manifest.noun} → {here.recording.manifest.noun}
            </th>
            <th scope="col">{names[0]}</th>
            <th scope="col">{names[1]}</th>
            <th scope="col">difference</th>
          </tr>
        </thead>
        <tbody>
          {largest(found.values, LINES).map((at) => {
            const [query, key] = [here.queries[Math.floor(at / columns)], here.keys[at % columns]];
            return (
              <tr key={at} class={at === chosen ? "chosen" : ""}>
                <th scope="row">
                  <button type="button" class="plain" aria-pressed={at === chosen} onClick={() => app.pick(query.tokens[0], key.tokens[0], false)}>
                    {query.name} → {key.name}
                  </button>
                </th>
                <td>{weightText(here.values[at], 3)}</td>
                <td>{weightText(there.values[at], 3)}</td>
                <td>
                  {found.values[at] > 0 && "+"}
                  {numberText(found.values[at])}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}
