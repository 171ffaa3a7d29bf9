// Change: a list of changes of the model, and what it does then, beside what it did before, on the same tokens.
import { useSignal } from "@preact/signals";
import { useApp, useDrawing } from "../app";
import { active, describe, newWords, placeName, placeSequence, readChanges, writeChanges, type Change as OneChange } from "../change";
import { matrixSvg } from "../export";
import { Thumbnail } from "../head-grid";
import { useKept, useLoaded } from "../loading";
import { Matrix } from "../matrix";
import { mostLikely, probabilities } from "../next-token";
import { paint } from "../picture";
import { Recording } from "../recording";
import { headName, kindTitles, numberText, weightText } from "../sentence";
import type { Answer, AttentionInfo, ChangeResult, Manifest, Token } from "../types";
import { useToken } from "../use-token";
import { groupTokens, readable } from "../word-groups";
import { WordLine } from "../word-line";
import "./change.css";
import { headMatrix } from "./look";

const BEST = 6;
const HEADS = 12;

export function whyNoChange({ places, steps }: Manifest): string | null {
  if (places.length) return null;
  const remedy = "open the model itself: regard look TEXT -m RUN";
  return steps.length ? `Training snapshots hold weights but no model; ${remedy}` : `This recording has no model that could be changed; ${remedy}`;
}

/** What the server says of the changes, and the recording of the changed model. */
interface Changed extends ChangeResult {
  recording: Recording;
}

export function Change({ recording }: { recording: Recording }) {
  const app = useApp();
  const { selection } = app;
  const changes = readChanges(selection.changes.value);
  const wanted = active(changes);
  const name = JSON.stringify(wanted);
  const { value, error } = useLoaded(name, async (): Promise<Changed | null> => {
    if (!wanted.length) return null;
    const { id, ...result } = await app.change(recording.id, wanted);
    return { ...result, recording: await Recording.open(app.source, id) };
  });
  const kept = useKept(value);
  const set = (next: OneChange[]) => selection.choose({ changes: writeChanges(next) });
  if (!app.live) return <p class="note">Changes need the model: open this text in a running viewer, with regard look TEXT -m RUN.</p>;
  return (
    <div class="change">
      <Chips changes={changes} manifest={recording.manifest} set={set} />
      <Controls recording={recording} add={(change) => set([...changes, change])} />
      <Vectors recording={recording} add={(change) => set([...changes, change])} />
      {error && <p class="failure">{error}</p>}
      {wanted.length > 0 && !error && kept && <Effect before={recording} changed={kept} changes={wanted} />}
      {wanted.length === 0 && <p class="soft">Nothing is changed: switch off the chosen head, and see what the model does without it.</p>}
    </div>
  );
}

/** The list of changes: each can be switched off, moved up, or removed. */
function Chips({ changes, manifest, set }: { changes: OneChange[]; manifest: Manifest; set(next: OneChange[]): void }) {
  const replaced = (at: number, ...by: OneChange[]) => [...changes.slice(0, at), ...by, ...changes.slice(at + 1)];
  return (
    <ul class="chips" aria-label="Changes">
      {changes.map((change, at) => {
        const text = describe(change, manifest);
        return (
          <li key={at} class={change.off ? "off" : ""}>
            <label>
              <input type="checkbox" checked={!change.off} onChange={(event) => set(replaced(at, { ...change, off: event.currentTarget.checked ? undefined : true }))} /> {text}
            </label>
            {at > 0 && (
              <button type="button" aria-label={`Move up: ${text}`} title="Move up" onClick={() => set([...changes.slice(0, at - 1), change, changes[at - 1], ...changes.slice(at + 1)])}>
                ↑
              </button>
            )}
            <button type="button" aria-label={`Remove: ${text}`} title="Remove" onClick={() => set(replaced(at))}>
              ×
            </button>
          </li>
        );
      })}
    </ul>
  );
}

/** Changes of the chosen head, for all words or for the chosen one. */
function Controls({ recording, add }: { recording: Recording; add(change: OneChange): void }) {
  const { selection } = useApp();
  const attention = recording.attention(selection.attention.value);
  const scope = useSignal<"head" | "layer">("head");
  const only = useSignal(false);
  const weight = useSignal("1");
  if (!attention || !recording.manifest.places.includes(attention.id)) return null;
  const [head, query, key] = [selection.head.value, selection.query.value, selection.key.value];
  const word = (sequence: string, at: number) => readable(recording.tokens(sequence)[at]?.text ?? "");
  const place: OneChange = { place: attention.id, ...(scope.value === "head" && { heads: [head] }) };
  const rows = only.value ? { positions: [query] } : {};
  const number = Number(weight.value);
  return (
    <div class="controls" role="group" aria-label="Change attention">
      <select aria-label="What is changed" value={scope.value} onChange={(event) => (scope.value = event.currentTarget.value as "head" | "layer")}>
        <option value="head">
          {kindTitles[attention.kind]} {headName(attention, head)}
        </option>
        <option value="layer">
          {kindTitles[attention.kind]} L{attention.layer}, all heads
        </option>
      </select>
      <label>
        <input type="checkbox" checked={only.value} onChange={(event) => (only.value = event.currentTarget.checked)} /> only where <em>{word(attention.queries, query)}</em> looks
      </label>
      <div class="choices">
        <button type="button" onClick={() => add({ ...place, ...rows, attention: "zero" })}>
          Switch off
        </button>
        <button type="button" onClick={() => add({ ...place, ...rows, attention: "uniform" })}>
          Look evenly
        </button>
        {attention.queries === attention.keys && (
          <button type="button" onClick={() => add({ ...place, ...rows, attention: "previous" })}>
            Look at the previous token
          </button>
        )}
        <button type="button" onClick={() => add({ ...place, ...rows, attention: key })}>
          Look at {word(attention.keys, key)}
        </button>
      </div>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          add({ ...place, weight: [query, key, number] });
        }}
      >
        <label>
          Weight of <em>{word(attention.queries, query)}</em> → <em>{word(attention.keys, key)}</em>{" "}
          <input type="text" inputMode="decimal" size={5} value={weight.value} onInput={(event) => (weight.value = event.currentTarget.value)} />
        </label>
        <button type="submit" disabled={!(weight.value.trim() !== "" && number >= 0 && number <= 1)}>
          Set
        </button>
      </form>
    </div>
  );
}

/** Replaces a vector of a token, or what a head writes there, by that of another token, layer, head or text. */
function Vectors({ recording, add }: { recording: Recording; add(change: OneChange): void }) {
  const { manifest } = recording;
  const ofTokens = manifest.places.filter((place) => !recording.attention(place));
  const ofHeads = manifest.places.filter((place) => recording.attention(place));
  const [to, from] = [useSignal(ofTokens[ofTokens.length - 1] ?? ofHeads[0]), useSignal(ofTokens[0] ?? ofHeads[0])];
  const [head, otherHead] = [useSignal(0), useSignal(0)];
  const [into, origin] = [useSignal(0), useSignal(0)];
  const text = useSignal("");
  const elsewhere = text.value.trim() !== "";
  const isHead = recording.attention(to.value) !== null;
  const pick = (place: string) => {
    if ((recording.attention(place) !== null) !== isHead) [from.value, otherHead.value, origin.value] = [place, 0, 0];
    [to.value, head.value, into.value] = [place, 0, 0];
  };
  const put = (event: Event) => {
    event.preventDefault();
    const vector = { place: from.value, position: origin.value, ...(isHead && { head: otherHead.value }), ...(elsewhere && { text: text.value }) };
    add({ place: to.value, ...(isHead && { heads: [head.value] }), positions: [into.value], vector });
  };
  const tokens = (place: string) => recording.tokens(placeSequence(place, manifest));
  return (
    <details>
      <summary>Replace a vector</summary>
      <form class="ask" onSubmit={put}>
        <PlaceField title="Replace" manifest={manifest} places={[...ofTokens, ...ofHeads]} value={to.value} onPick={pick} />
        <HeadField title="head to replace" attention={recording.attention(to.value)} value={head.value} onPick={(at) => (head.value = at)} />
        <TokenField title="of" tokens={tokens(to.value)} value={into.value} onPick={(at) => (into.value = at)} />
        <PlaceField title="by" manifest={manifest} places={isHead ? ofHeads : ofTokens} value={from.value} onPick={(place) => ([from.value, otherHead.value, origin.value] = [place, 0, 0])} />
        <HeadField title="head to copy" attention={recording.attention(from.value)} value={otherHead.value} onPick={(at) => (otherHead.value = at)} />
        {elsewhere ? (
          <label class="field">
            <span>token number</span>
            <input type="text" inputMode="numeric" size={4} value={origin.value + 1} onInput={(event) => (origin.value = Math.max(0, Math.trunc(Number(event.currentTarget.value)) - 1 || 0))} />
          </label>
        ) : (
          <TokenField title="of" tokens={tokens(from.value)} value={origin.value} onPick={(at) => (origin.value = at)} />
        )}
        <label class="field grow">
          <span>in another text (optional)</span>
          <input type="text" value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
        </label>
        <button type="submit">Replace</button>
      </form>
    </details>
  );
}

function PlaceField({ title, manifest, places, value, onPick }: { title: string; manifest: Manifest; places: string[]; value: string; onPick(place: string): void }) {
  return (
    <label class="field">
      <span>{title}</span>
      <select value={value} onChange={(event) => onPick(event.currentTarget.value)}>
        {places.map((place) => (
          <option key={place} value={place}>
            {placeName(place, manifest)}
          </option>
        ))}
      </select>
    </label>
  );
}

function HeadField({ title, attention, value, onPick }: { title: string; attention: AttentionInfo | null; value: number; onPick(head: number): void }) {
  if (!attention) return null;
  return (
    <label class="field">
      <span>{title}</span>
      <select value={String(value)} onChange={(event) => onPick(Number(event.currentTarget.value))}>
        {Array.from({ length: attention.heads }, (_, head) => (
          <option key={head} value={String(head)}>
            {headName(attention, head)}
          </option>
        ))}
      </select>
    </label>
  );
}

function TokenField({ title, tokens, value, onPick }: { title: string; tokens: Token[]; value: number; onPick(at: number): void }) {
  return (
    <label class="field">
      <span>{title}</span>
      <select value={String(value)} onChange={(event) => onPick(Number(event.currentTarget.value))}>
        {tokens.map((token, at) => (
          <option key={at} value={String(at)}>
            {readable(token.text)} ({at + 1})
          </option>
        ))}
      </select>
    </label>
  );
}

/** What the changes do: loss, text, probabilities, and all heads whose weights moved. */
function Effect({ before, changed, changes }: { before: Recording; changed: Changed; changes: OneChange[] }) {
  const { selection } = useApp();
  const { loss, code, recording } = changed;
  const copied = useSignal(false);
  return (
    <>
      <p class="sentence" aria-live="polite">
        {loss ? (
          <>
            Loss of this text: {numberText(loss[0])} → {numberText(loss[1])}
            <span class="aside">
              {" "}
              · {loss[1] === loss[0] ? "the same" : loss[1] > loss[0] ? "worse" : "better"}
              {loss[1] !== loss[0] && ` by ${numberText(Math.abs(loss[1] - loss[0]))} nats per token`}
            </span>
          </>
        ) : (
          "The same input, in the changed model:"
        )}
      </p>
      {before.manifest.next ? (
        <>
          <Written recording={before} changes={changes} />
          <NextTokens before={before} after={recording} sequence={before.manifest.next.sequence} />
        </>
      ) : (
        before.manifest.answers.map((answer, at) => <Answers key={answer.question} before={answer} after={recording.manifest.answers[at]} />)
      )}
      {before.manifest.attentions.length > 0 && (
        <>
          <Moved before={before} changed={changed} changes={changes} />
          <BothHeads after={recording} />
        </>
      )}
      <div class="choices">
        <button type="button" onClick={() => selection.choose({ ...selection.choice.peek(), recording: recording.id, view: before.manifest.attentions.length ? "look" : "next", changes: "" })}>
          Open the changed model in the other views
        </button>
        <button type="button" onClick={() => void navigator.clipboard.writeText(code).then(() => (copied.value = true))}>
          {copied.value ? "Copied" : "Copy as Python"}
        </button>
      </div>
    </>
  );
}

/** What the model writes by itself, before and after; new words are marked. */
function Written({ recording, changes }: { recording: Recording; changes: OneChange[] }) {
  const app = useApp();
  const { value, error } = useLoaded(JSON.stringify(changes), () => app.written(recording.id, changes));
  if (error) return <p class="failure">{error}</p>;
  const [before, after] = value?.written ?? [];
  if (value && (before === null || before === undefined || after === null || after === undefined)) return null;
  const words = (text: string) => text.split(/(?<=\s)/);
  const fresh = before && after ? newWords(words(before), words(after)) : [];
  return (
    <dl class="written" aria-label="What it writes">
      <dt>It wrote</dt>
      <dd>{before ?? "…"}</dd>
      <dt>It writes</dt>
      <dd>{after === undefined || after === null ? "…" : words(after).map((word, at) => (fresh[at] ? <mark key={at}>{word}</mark> : word))}</dd>
    </dl>
  );
}

/** The most likely next tokens after the chosen token, before and after. */
function NextTokens({ before, after, sequence }: { before: Recording; after: Recording; sequence: string }) {
  const tokens = before.tokens(sequence);
  const [at, choose] = useToken(sequence, tokens.length - 1);
  const { value, error } = useLoaded(`${after.id} ${at}`, async () => ({
    at,
    logits: await Promise.all([before.next(at), after.next(at)]),
    vocabulary: await before.vocabulary(),
  }));
  const found = useKept(value);
  const groups = groupTokens(tokens, false, false);
  if (error) return <p class="failure">{error}</p>;
  const ids = found ? [...new Set(found.logits.flatMap((logits) => mostLikely(logits, BEST)))] : [];
  const chances = found?.logits.map((logits) => probabilities(logits, 1)) ?? [];
  return (
    <section>
      <WordLine label="After which token" groups={groups} chosen={at} onPick={(to) => choose(groups[to].tokens[0])} />
      {found && (
        <Pairs
          caption={`After ${readable(tokens[found.at].text)}, the most likely next tokens`}
          rows={ids.map((id) => ({ name: readable(found.vocabulary[id] ?? `#${id}`), shares: [chances[0](id), chances[1](id)] }))}
        />
      )}
    </section>
  );
}

function Answers({ before, after }: { before: Answer; after: Answer }) {
  const names = [...new Set([...before.guesses, ...after.guesses].map((guess) => guess.text))];
  const share = (answer: Answer, name: string) => answer.guesses.find((guess) => guess.text === name)?.probability ?? null;
  return <Pairs caption={before.question} rows={names.map((name) => ({ name, shares: [share(before, name), share(after, name)] }))} />;
}

/** Shares before and after, with bars; null is too small to be listed. */
function Pairs({ caption, rows }: { caption: string; rows: { name: string; shares: (number | null)[] }[] }) {
  return (
    <table class="row bars pairs">
      <caption>{caption}</caption>
      <thead>
        <tr>
          <th scope="col">token</th>
          <th scope="col">before</th>
          <th scope="col">after</th>
        </tr>
      </thead>
      <tbody>
        {rows.map(({ name, shares }) => (
          <tr key={name} class={shares[0] !== shares[1] ? "moved" : ""}>
            <th scope="row">{name}</th>
            {shares.map((share, at) => (
              <td key={at}>
                <span class="bar" style={{ width: `calc((100% - 76px) * ${share ?? 0})` }} />
                <span class="number">{share === null ? "–" : weightText(share, 4)}</span>
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** The heads whose weights moved, the farthest first; those that were changed themselves are marked. */
function Moved({ before, changed, changes }: { before: Recording; changed: Changed; changes: OneChange[] }) {
  const { selection } = useApp();
  const { value, error } = useLoaded(changed.recording.id, () => changed.recording.overview(0));
  const thumbnails = useKept(value);
  if (error) return <p class="failure">{error}</p>;
  const distance = (attention: AttentionInfo, head: number) => changed.moved[attention.id]?.[head] ?? 0;
  const isChanged = (attention: AttentionInfo, head: number) => changes.some((each) => each.place === attention.id && (!each.heads || each.heads.includes(head)));
  const far = (thumbnails ?? []).filter((each) => distance(each.attention, each.head) > 0).sort((a, b) => distance(b.attention, b.head) - distance(a.attention, a.head));
  const total = before.manifest.attentions.reduce((sum, each) => sum + each.heads, 0);
  return (
    <section aria-label="Heads that moved">
      <h3>
        Weights moved in {far.length} of {total} heads{far.length > HEADS && `; the ${HEADS} that moved farthest`}
      </h3>
      <div class="cards">
        {far.slice(0, HEADS).map((each) => {
          const { attention, head } = each;
          return (
            <button key={`${attention.id} ${head}`} type="button" class="head" aria-pressed={selection.attention.value === attention.id && selection.head.value === head} onClick={() => selection.choose({ attention: attention.id, head })}>
              <Thumbnail thumbnail={each} />
              <span class="name">
                {headName(attention, head)}
                {isChanged(attention, head) && <span class="mark">changed</span>}
              </span>
              <span class="soft">{kindTitles[attention.kind]}</span>
              <span class="soft number">moved {weightText(distance(attention, head), 3)}</span>
            </button>
          );
        })}
      </div>
    </section>
  );
}

/** The chosen head, before and after. */
function BothHeads({ after }: { after: Recording }) {
  const app = useApp();
  const { attention: id, head, merge, hide, renormalise } = app.selection.choice.value;
  const how = { merge, hide, renormalise };
  const { value } = useLoaded(JSON.stringify([after.id, id, head, how]), async () => {
    const attention = after.attention(id);
    return attention ? paint(after, attention, head, 0, how) : null;
  });
  const there = useKept(value);
  const { value: here } = app.picture.value;
  const left = here && headMatrix(app, here);
  useDrawing(() => (left ? matrixSvg(left, app.dark.value) : ""));
  if (!here || !left || !there || here.attention.id !== there.attention.id) return null;
  const name = `${kindTitles[here.attention.kind]} ${headName(here.attention, here.head)}`;
  return (
    <div class="sides">
      <section>
        <h3>{name}, before</h3>
        <Matrix {...left} label={`Heat map of ${name}, before`} />
      </section>
      <section>
        <h3>{name}, after</h3>
        <Matrix {...left} label={`Heat map of ${name}, after`} values={there.values} masked={there.masked} />
      </section>
    </div>
  );
}
