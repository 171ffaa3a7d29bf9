// The lower half of the Change view: what the changed model does, beside what it did before.
import { useApp, useDrawing } from "../app";
import { newWords, type Change } from "../change";
import { Copy } from "../copy";
import { matrixSvg } from "../export";
import { Thumbnail } from "../head-grid";
import { useKept, useLoaded } from "../loading";
import { Matrix } from "../matrix";
import { inShort, inTens, mostLikely, probabilities } from "../next-token";
import { paint } from "../picture";
import type { Recording } from "../recording";
import { lettersOf, Residues } from "../residues";
import { headName, kindTitles, numberText, weightText } from "../sentence";
import type { Answer, AttentionInfo, ChangeResult } from "../types";
import { useToken } from "../use-token";
import { distinct, explained, groupTokens } from "../word-groups";
import { WordLine } from "../word-line";
import { headMatrix } from "./look";

const BEST = 6;
const HEADS = 12;

/** What the server says of the changes, and the recording of the changed model. */
export interface Changed extends ChangeResult {
  recording: Recording;
}

/** How far apart two numbers are as they are written, or as they are if they are written alike. */
export function shownDifference(first: number, second: number): number {
  const [a, b] = [first, second].map((value) => Number(value.toFixed(3)));
  return Math.abs(a === b ? first - second : a - b);
}

/** The answers that a recording lists, in any order. */
const listed = ({ manifest }: Recording) => JSON.stringify(manifest.answers.map(({ guesses }) => guesses.map((guess) => guess.text).sort()));

/** What the changes do: loss, text, probabilities, and all heads whose weights moved. */
export function Effect({ before, changed, changes }: { before: Recording; changed: Changed; changes: Change[] }) {
  const { selection } = useApp();
  const { loss, code, recording } = changed;
  return (
    <>
      <p class="sentence" aria-live="polite">
        {loss ? (
          <>
            Loss of this text: {numberText(loss[0])} → {numberText(loss[1])}
            <span class="aside">
              {" "}
              · {loss[1] === loss[0] ? "the same" : loss[1] > loss[0] ? "worse" : "better"}
              {loss[1] !== loss[0] && ` by ${numberText(shownDifference(loss[0], loss[1]))} nats per token`}
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
        before.manifest.answers.length > 0 && (
          <>
            {before.manifest.answers.map((answer, at) => (
              <Answers key={answer.question} before={answer} after={recording.manifest.answers[at]} letters={lettersOf(before)} />
            ))}
            {listed(before) !== listed(recording) && !before.manifest.answers.every((answer) => isBelow(answer, lettersOf(before))) && <p class="soft">A dash: not among the likeliest answers.</p>}
          </>
        )
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
        <Copy key={code} title="Copy as Python" name="Python code" text={() => code} said={() => "Copied."} />
      </div>
    </>
  );
}

/** What the model writes by itself, before and after; new words are marked. */
function Written({ recording, changes }: { recording: Recording; changes: Change[] }) {
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
  const names = distinct(ids.map((id) => found?.vocabulary[id] ?? `#${id}`));
  const chances = found?.logits.map((logits) => probabilities(logits, 1)) ?? [];
  return (
    <section>
      <WordLine label="After which token" groups={groups} chosen={at} onPick={(to) => choose(groups[to].tokens[0])} />
      {found && (
        <Pairs
          caption={
            <>
              After <em>{groups[found.at].name}</em>, the most likely next tokens
              {explained(names)}
            </>
          }
          rows={ids.map((id, at) => ({ name: names[at], shares: [chances[0](id), chances[1](id)] }))}
        />
      )}
    </section>
  );
}

/** Whether an answer has a state for each residue, which is written below it. */
const isBelow = ({ guesses }: Answer, letters: string) => letters !== "" && guesses[0]?.text.length === letters.length;

function Answers({ before, after, letters }: { before: Answer; after: Answer; letters: string }) {
  if (isBelow(before, letters) && isBelow(after, letters)) {
    const best = [before, after].map((answer) => answer.guesses[0]);
    return (
      <>
        <Pairs caption={before.question} what="of all residues" rows={[{ name: "mean probability", shares: best.map((guess) => guess.probability) }]} />
        <Residues letters={letters} states={best.map((guess) => guess.text)} />
        <p class="soft">Below each residue: its state before and after; what differs is marked.</p>
      </>
    );
  }
  const names = [...new Set([...before.guesses, ...after.guesses].map((guess) => guess.text))];
  const share = (answer: Answer, name: string) => answer.guesses.find((guess) => guess.text === name)?.probability ?? null;
  const long = names.some((name) => inShort(name) !== name);
  return (
    <>
      <Pairs caption={before.question} what="answer" rows={names.map((name) => ({ name: inShort(name), shares: [share(before, name), share(after, name)] }))} />
      {long && (
        <dl class="written" aria-label="Its answers">
          <dt>Before</dt>
          <dd class="letters">{inTens(before.guesses[0].text)}</dd>
          <dt>After</dt>
          <dd class="letters">{inTens(after.guesses[0].text)}</dd>
        </dl>
      )}
    </>
  );
}

/** Shares before and after, with bars; null is too small to be listed. */
function Pairs({ caption, what = "token", rows }: { caption: preact.ComponentChildren; what?: string; rows: { name: string; shares: (number | null)[] }[] }) {
  return (
    <table class="row bars pairs">
      <caption>{caption}</caption>
      <thead>
        <tr>
          <th scope="col">{what}</th>
          <th scope="col">before</th>
          <th scope="col">after</th>
        </tr>
      </thead>
      <tbody>
        {rows.map(({ name, shares }, at) => (
          <tr key={at} class={shares[0] !== shares[1] ? "moved" : ""}>
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
function Moved({ before, changed, changes }: { before: Recording; changed: Changed; changes: Change[] }) {
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
