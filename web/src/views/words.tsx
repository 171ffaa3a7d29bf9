// Words: one word in two contexts. The cosine of its vectors after each layer, and their place among all other words.
import { useSignal } from "@preact/signals";
import { useMemo, useRef } from "preact/hooks";
import { useApp } from "../app";
import { useToken } from "../use-token";
import { cosine, counterpart, meanOf, same, shared } from "../word-vectors";
import { WordLine } from "../word-line";
import { reason, useKept, useLoaded } from "../loading";
import { Folded, Numbers } from "../numbers";
import { readPartner, useOther, writePartner, type Partner } from "../comparison-side";
import { pca } from "../pca";
import { Recording } from "../recording";
import { numberText } from "../sentence";
import { Scatter, type Point } from "../scatter";
import type { Manifest } from "../types";
import { groupOf, groupTokens, type Group } from "../word-groups";
import "./words.css";

export function whyNoWords({ hidden, steps }: Manifest): string | null {
  if (hidden.length) return null;
  return steps.length ? "Training snapshots hold weights but no hidden states; open the model itself: regard look TEXT -m RUN" : "This recording has no hidden states.";
}

/** One text: its words, and the hidden states of its tokens after each layer. */
interface Text {
  id: string;
  title: string;
  noun: string;
  sequence: string;
  groups: Group[];
  width: number;
  states: Float32Array[];
}

async function textOf(recording: Recording, sequence: string, layers: number, hide: boolean): Promise<Text> {
  const width = recording.manifest.hidden.find((each) => each.sequence === sequence)?.width ?? 0;
  const states = await Promise.all(Array.from({ length: layers }, (_, layer) => recording.hidden(sequence, layer)));
  return { id: recording.id, title: recording.manifest.title, noun: recording.manifest.noun, sequence, groups: groupTokens(recording.tokens(sequence), true, hide), width, states };
}

/** What is made of words, residues or patches. */
const wholeOf = (noun: string) => ({ residue: "protein", patch: "image" })[noun] ?? "text";

const layerName = (layer: number) => (layer ? `layer ${layer}` : "embedding");
const after = (layer: number) => (layer ? `After layer ${layer}` : "In the embedding");

export function Words({ recording }: { recording: Recording }) {
  const { selection } = useApp();
  const { hidden } = recording.manifest;
  const wanted = useSignal(hidden[0].sequence);
  const mine = hidden.find((each) => each.sequence === wanted.value) ?? hidden[0];
  const [token, choose] = useToken(mine.sequence);
  const partner = readPartner(selection.partner.value);
  const change = (to: Partial<Partner>) => selection.choose({ partner: writePartner({ ...readPartner(selection.partner.peek()), ...to }) });
  const { value: other, error } = useOther(recording, partner.recording);
  const hide = selection.hide.value;
  const theirs = other?.manifest.hidden.find((each) => each.sequence === mine.sequence) ?? other?.manifest.hidden[0];
  const fits = theirs?.width === mine.width;
  const { value, error: trouble } = useLoaded(`${other?.id} ${mine.sequence} ${theirs?.sequence} ${hide}`, async () => {
    if (!other || !theirs || !fits) return null;
    const layers = Math.min(mine.layers, theirs.layers);
    return Promise.all([textOf(recording, mine.sequence, layers, hide), textOf(other, theirs.sequence, layers, hide)]);
  });
  const texts = useKept(value);
  const pair = (opened: Recording) => {
    if (selection.recording.peek() !== recording.id) return;
    const [ours, others] = [recording, opened].map((each) => groupTokens(each.tokens(mine.sequence), true, true));
    const word = shared(ours, others, Math.max(0, groupOf(ours, token)));
    if (word) choose(word.tokens[0]);
    change({ recording: opened === recording ? "" : opened.id, word: null });
  };
  const why = error ?? trouble ?? (other && !theirs ? "That recording has no hidden states; choose another." : other && !fits ? "The two models have hidden states of different sizes, which cannot be compared." : null);
  return (
    <div class="words">
      {hidden.length > 1 && (
        <div class="choices" role="group" aria-label="Text">
          {hidden.map((each) => (
            <button key={each.sequence} type="button" aria-pressed={each === mine} onClick={() => (wanted.value = each.sequence)}>
              {each.sequence}
            </button>
          ))}
        </div>
      )}
      <Second recording={recording} partner={partner} onPick={pair} />
      {why ? <p class="failure">{why}</p> : texts && <Pair texts={texts} tokens={[token, partner.word]} choose={choose} chooseOther={(word) => change({ word })} />}
    </div>
  );
}

/** Chooses the second text: another recording, or a new one. */
function Second({ recording, partner, onPick }: { recording: Recording; partner: Partner; onPick(opened: Recording): void }) {
  const app = useApp();
  const text = useSignal("");
  const running = useSignal(false);
  /** The id of the recording that is loading. */
  const coming = useSignal<string | null>(null);
  const latest = useRef(0);
  const problem = useSignal<string | null>(null);
  const model = app.modelOf(recording.manifest);
  const whole = wholeOf(recording.manifest.noun);
  /** Of two requests, the later one wins, whichever arrives first. */
  const pick = async (get: () => Promise<string> | string) => {
    const mine = ++latest.current;
    const isLatest = () => mine === latest.current;
    running.value = true;
    problem.value = null;
    try {
      const id = await get();
      if (isLatest()) coming.value = id;
      const opened = id === recording.id ? recording : await Recording.open(app.source, id);
      if (isLatest()) onPick(opened);
    } catch (error) {
      if (isLatest()) problem.value = reason(error);
    } finally {
      if (isLatest()) {
        running.value = false;
        coming.value = null;
      }
    }
  };
  return (
    <div class="second-text">
      <label class="field">
        <span>Second {whole}</span>
        <select value={coming.value ?? (partner.recording || recording.id)} onChange={({ currentTarget: { value } }) => pick(() => value)}>
          {app.choices.value.map((each) => (
            <option key={each.id} value={each.id}>
              {each.id === recording.id ? `the same ${whole}` : `${each.title}: ${each.text || each.model}`}
            </option>
          ))}
        </select>
      </label>
      {model && (
        <form
          class="ask"
          onSubmit={(event) => {
            event.preventDefault();
            void pick(() => app.record({ model: model.name, text: text.value }));
          }}
        >
          <label class="field grow">
            <span>
              or a new {whole}, read by {model.name}
            </span>
            <input type="text" required value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
          </label>
          <button type="submit" disabled={running.value}>
            {running.value ? "Reading …" : "Read"}
          </button>
        </form>
      )}
      {problem.value && <p class="failure">{problem.value}</p>}
    </div>
  );
}

interface PairProps {
  texts: [Text, Text];
  tokens: [number, number | null];
  choose(token: number): void;
  /** Null: the same word as the first, if the text has it. */
  chooseOther(token: number | null): void;
}

function Pair({ texts, tokens, choose, chooseOther }: PairProps) {
  const [first, second] = texts;
  const last = first.states.length - 1;
  const wanted = useSignal<number | null>(null);
  const layer = Math.min(wanted.value ?? last, last);
  const own = first.id === second.id && first.sequence === second.sequence;
  const a = Math.max(0, groupOf(first.groups, tokens[0]));
  const known = tokens[1] === null ? -1 : groupOf(second.groups, tokens[1]);
  const b = known >= 0 ? known : counterpart(second.groups, first.groups[a]?.text ?? "", own ? a : -1);
  const words = own ? spots(first, false, [a, b]) : [...spots(first, false, [a]), ...spots(second, true, [b])];
  const plane = useMemo(() => planeOf(words, layer), [texts, layer, words.length]);
  if (!first.groups.length || !second.groups.length) return <p class="failure">Everything is hidden; show special tokens again.</p>;
  const cosines = first.states.map((states, at) => cosine(meanOf(states, first.width, first.groups[a].tokens), meanOf(second.states[at], second.width, second.groups[b].tokens)));
  const pickFirst = (at: number) => {
    choose(first.groups[at].tokens[0]);
    const there = counterpart(second.groups, first.groups[at].text, own ? at : -1);
    chooseOther(same(second.groups[there], first.groups[at]) ? null : second.groups[b].tokens[0]);
  };
  const pickSecond = (at: number) => chooseOther(second.groups[at].tokens[0]);
  const points = words.map((word, at): Point => ({ x: plane.points[at][0], y: plane.points[at][1], text: word.group.text, second: word.second, marked: word.marked }));
  const missing = words.length < first.groups.length + (own ? 0 : second.groups.length);
  const noun = first.noun;
  const whole = wholeOf(noun);
  const [x, y] = plane.shares;
  const share = `${percent(x + y)} of the variance in these two directions (${percent(x)} and ${percent(y)})`;
  const shares = (of: Text, other: Text) => (at: number) => (!own && !of.groups[at].special && other.groups.some((group) => same(group, of.groups[at])) ? "shared" : "");
  return (
    <>
      <div class="pair">
        <h3>
          <span class="sign" aria-hidden="true" /> First {noun}
        </h3>
        <WordLine label={`First ${whole}`} groups={first.groups} chosen={a} style={shares(first, second)} onPick={pickFirst} />
        <h3>
          <span class={own ? "sign" : "sign square"} aria-hidden="true" /> Second {noun}
        </h3>
        <WordLine label={`Second ${whole}`} groups={second.groups} chosen={b} style={shares(second, first)} onPick={pickSecond} />
      </div>
      <p class="sentence" aria-live="polite">
        <em>{first.groups[a].name}</em> and <em>{second.groups[b].name}</em>: {cosineText(cosines)}
        {own && a === b && <span class="aside"> · the same {noun} twice; choose another</span>}
      </p>
      {first.title !== second.title && <p class="note">These vectors come from two models, whose dimensions are unrelated, so a cosine between them says little.</p>}
      <div class="alike">
        <Cosines cosines={cosines} layer={layer} onPick={(at) => (wanted.value = at)} />
        <figure>
          <Scatter points={points} onPick={(at) => (words[at].second ? pickSecond : pickFirst)(words[at].at)} label={`${after(layer)}: every ${noun} in two dimensions, ${share}.`} />
          <figcaption>
            <span>
              {after(layer)}: {share}
              .{missing && (whole === "text" ? " Special tokens and punctuation are left out." : " Special tokens are left out.")}
            </span>
            {!own && (
              <span class="signs">
                <span class="sign" aria-hidden="true" /> first {whole} <span class="sign square" aria-hidden="true" /> second {whole}
              </span>
            )}
          </figcaption>
          <Folded summary="All points as numbers">
            {() => <Numbers caption={after(layer)} columns={{ x: points.map((point) => point.x), y: points.map((point) => point.y) }} name={(at) => words[at].group.name} />}
          </Folded>
        </figure>
      </div>
    </>
  );
}

const percent = (share: number) => `${Math.round(share * 100)} %`;

function cosineText(cosines: (number | null)[]): string {
  const text = (value: number | null) => (value === null ? "not defined" : numberText(value, 2));
  const last = cosines.length - 1;
  return last > 0 ? `cosine ${text(cosines[0])} in the embedding, ${text(cosines[last])} after layer ${last}` : `cosine ${text(cosines[0])}`;
}

/** A word that is drawn in the plane. */
interface Spot {
  text: Text;
  group: Group;
  at: number;
  second: boolean;
  marked: boolean;
}

/** Special tokens and punctuation are far from all words and would hide the rest, so only a selected one is drawn. */
function spots(text: Text, second: boolean, marked: number[]): Spot[] {
  const all = text.groups.map((group, at) => ({ text, group, at, second, marked: marked.includes(at) }));
  return all.filter(({ group, marked: chosen }) => chosen || (!group.special && /[\p{L}\p{N}]/u.test(group.text)));
}

function planeOf(words: Spot[], layer: number) {
  const width = words[0]?.text.width ?? 0;
  const all = new Float64Array(words.length * width);
  words.forEach(({ text, group }, at) => all.set(meanOf(text.states[layer], width, group.tokens), at * width));
  return pca(all, words.length, width);
}

/** A bar for each layer; a click also chooses the layer of the plane. */
function Cosines({ cosines, layer, onPick }: { cosines: (number | null)[]; layer: number; onPick(at: number): void }) {
  const negative = cosines.some((value) => (value ?? 0) < 0);
  const bar = (value: number) => (negative ? { left: `calc((100% - 60px) * ${0.5 + Math.min(0, value) / 2})`, width: `calc((100% - 60px) * ${Math.abs(value) / 2})` } : { width: `calc((100% - 60px) * ${value})` });
  return (
    <table class="row">
      <caption>Cosine after each layer{negative && ", the middle is 0"}</caption>
      <thead class="unseen">
        <tr>
          <th scope="col">layer</th>
          <th scope="col">cosine</th>
        </tr>
      </thead>
      <tbody>
        {cosines.map((value, at) => (
          <tr key={at} class={at === layer ? "chosen" : ""}>
            <th scope="row">
              <button type="button" aria-pressed={at === layer} onClick={() => onPick(at)}>
                {layerName(at)}
              </button>
            </th>
            <td>
              <span class="bar" style={bar(value ?? 0)} />
              <span class="number">{value === null ? "–" : numberText(value)}</span>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
