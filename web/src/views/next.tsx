// Next: the probabilities of the next token, how temperature changes them, and generation token by token, with what the chosen
// head looks at.
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { useApp } from "../app";
import { useToken } from "../use-token";
import { inShort, inTens, isControlToken, mostLikely, probabilities, rankOf, continued } from "../next-token";
import { WordLine } from "../word-line";
import { reason, useKept, useLoaded } from "../loading";
import type { Recording } from "../recording";
import { lettersOf, Residues } from "../residues";
import { countText, headName, kindTitles, numberText, weightText } from "../sentence";
import { RowTable } from "../row-table";
import { readBy, type Answer, type Manifest } from "../types";
import { distinct, explained, groupTokens, namesOf } from "../word-groups";
import "./next.css";

const SHOWN = 10;

export function whyNoNext({ next, answers, steps }: Manifest): string | null {
  if (next || answers.length) return null;
  return steps.length ? "Training snapshots hold weights but no predictions; open the model itself: regard look TEXT -m RUN" : "This model does not predict a next token.";
}

export function Next({ recording }: { recording: Recording }) {
  const { next, answers } = recording.manifest;
  return (
    <div class="next">
      {next && <NextToken recording={recording} sequence={next.sequence} begin={next.begin} />}
      {!next && answers.map((answer) => <Answers key={answer.question} answer={answer} recording={recording} />)}
    </div>
  );
}

/** The answers of a model that does not generate text. */
function Answers({ answer, recording }: { answer: Answer; recording: Recording }) {
  const [best] = answer.guesses;
  return (
    <section>
      <p class="sentence" aria-live="polite">
        {best && (
          <>
            <em>{inShort(best.text)}</em> ({weightText(best.probability)})
          </>
        )}
      </p>
      {best && <States letters={lettersOf(recording)} states={best.text} />}
      <table class="row bars">
        <caption>{answer.question}</caption>
        <tbody>
          {answer.guesses.map((guess, at) => (
            <tr key={at}>
              <th scope="row">{guess.text}</th>
              <Bar share={guess.probability} />
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** What a model says of each residue, below it; another long answer in groups of ten. */
function States({ letters, states }: { letters: string; states: string }) {
  if (letters.length === states.length) return <Residues letters={letters} states={[states]} />;
  return inShort(states) === states ? null : <p class="letters">{inTens(states)}</p>;
}

function Bar({ share }: { share: number }) {
  return (
    <td>
      <span class="bar" style={{ width: `calc((100% - 60px) * ${share})` }} />
      <span class="number">{weightText(share, 4)}</span>
    </td>
  );
}

interface Logits {
  at: number;
  logits: Float32Array;
  vocabulary: string[];
}

function NextToken({ recording, sequence, begin }: { recording: Recording; sequence: string; begin: number }) {
  const app = useApp();
  const tokens = recording.tokens(sequence);
  const [at, choose] = useToken(sequence, begin - 1);
  const temperature = useSignal(1);
  const { value, error } = useLoaded(String(at), async (): Promise<Logits> => {
    const [logits, vocabulary] = await Promise.all([recording.next(at), recording.vocabulary()]);
    return { at, logits, vocabulary };
  });
  const found = useKept(value);
  const attention = app.attention.value;
  const reads = attention !== null && readBy(attention) === sequence;
  const row = app.row.value.value;
  const step = (by: number) => (reads ? app.move("query", by) : choose(Math.max(0, Math.min(tokens.length - 1, at + by))));
  const play = app.playing.value;
  return (
    <>
      <Texts recording={recording} sequence={sequence} begin={begin} at={at} choose={choose} />
      <div class="controls">
        <span class="choices">
          <button type="button" disabled={at <= 0} onClick={() => step(-1)}>
            ← Back {reads && <kbd aria-hidden="true">K</kbd>}
          </button>
          <button type="button" disabled={at >= tokens.length - 1} onClick={() => step(1)}>
            Forward → {reads && <kbd aria-hidden="true">J</kbd>}
          </button>
          {reads && (
            <button type="button" aria-pressed={play} onClick={() => (app.playing.value = !play)}>
              {play ? "Stop" : "Play"}
            </button>
          )}
        </span>
        <label class="slider">
          Temperature
          <input type="range" min={0} max={2} step={0.05} value={temperature.value} onInput={(event) => (temperature.value = Number(event.currentTarget.value))} />
          <output class="number">{temperature.value.toFixed(2)}</output>
          {temperature.value === 0 && <span class="soft">greedy: always the most likely</span>}
        </label>
      </div>
      {error && <p class="failure">{error}</p>}
      {found && !error && (
        <div class="look">
          <div class="guesses">
            <Guesses recording={recording} sequence={sequence} begin={begin} found={found} temperature={temperature.value} />
            {recording.manifest.lens && <Lens recording={recording} at={at} text={namesOf(tokens)[at] ?? ""} />}
          </div>
          <div class="beside">
            {reads && attention ? (
              <>
                {row && (
                  <h3>
                    {kindTitles[row.attention.kind]} {headName(row.attention, row.head)}
                  </h3>
                )}
                <RowTable />
              </>
            ) : (
              attention && <p class="soft">The chosen head has no queries in this text. Choose one that has, on the left, to see where it looks.</p>
            )}
          </div>
        </div>
      )}
    </>
  );
}

/** What each layer would write after a token: its vector, read through the final norm and the head. */
function Lens({ recording, at, text }: { recording: Recording; at: number; text: string }) {
  const { value, error } = useLoaded(String(at), () => recording.lens(at));
  const layers = useKept(value);
  const names = layers?.map(({ guesses }) => distinct(guesses.map((guess) => guess.text))) ?? [];
  if (error) return <p class="failure">{error}</p>;
  return (
    <details>
      <summary>What each layer would write</summary>
      {layers && (
        <div class="wide-table">
          <table class="row lens">
            <caption>
              After <em>{text}</em>, read through the final norm and the head (logit lens)
              {explained(names.flat())}
            </caption>
            <tbody>
              {layers.map(({ layer, guesses }, row) => (
                <tr key={layer}>
                  <th scope="row">{layer === 0 ? "embedding" : `layer ${layer}`}</th>
                  {guesses.map((guess, rank) => (
                    <td key={rank}>
                      {names[row][rank]} <span class="soft number">{weightText(guess.probability)}</span>
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <p class="soft">Only the last layer was trained to be read like this; what the others would write means little if norms or feedback come between.</p>
    </details>
  );
}

interface TextsProps {
  recording: Recording;
  sequence: string;
  begin: number;
  at: number;
  choose(token: number): void;
}

/** The text so far, tinted by the weights of the chosen head; the source above it if the head looks at that. */
function Texts({ recording, sequence, begin, at, choose }: TextsProps) {
  const app = useApp();
  const row = app.row.value.value;
  const source = "source" in recording.manifest.sequences ? "source" : undefined;
  const weights = useMemo(() => {
    const found = new Map<number, number>();
    row?.keys.forEach((key, column) => key.tokens.forEach((token) => found.set(token, row.values[column])));
    return found;
  }, [row]);
  const looks = row && readBy(row.attention) === sequence ? row.attention.keys : null;
  const tint = (name: string) => (looks === name ? (token: number) => weights.get(token) ?? 0 : undefined);
  const title = (name: string) => (looks === name ? (token: number) => weights.has(token) ? `weight ${weightText(weights.get(token) ?? 0, 3)}` : undefined : undefined);
  const groups = (name: string) => groupTokens(recording.tokens(name), false, false);
  return (
    <div class="texts">
      {source && (
        <>
          <h3>Source</h3>
          <WordLine label="Source" groups={groups(source)} chosen={looks === source ? app.selection.key.value : -1} strength={tint(source)} title={title(source)} onPick={(token) => looks === source && app.pick(null, token, false)} />
        </>
      )}
      <h3>Text so far</h3>
      <WordLine
        label="Text so far"
        groups={groups(sequence)}
        chosen={at}
        strength={tint(sequence)}
        title={title(sequence)}
        style={(token) => `${token >= begin ? "written " : ""}${token > at ? "later" : ""}`}
        onPick={choose}
      />
      <span />
      <p class="soft">
        Underlined tokens were generated, pale ones come later{looks && "; the tint is the weight of the chosen head"}.
      </p>
    </div>
  );
}

interface GuessesProps {
  recording: Recording;
  sequence: string;
  begin: number;
  found: Logits;
  temperature: number;
}

function Guesses({ recording, sequence, begin, found, temperature }: GuessesProps) {
  const app = useApp();
  const { at, logits, vocabulary } = found;
  const tokens = recording.tokens(sequence);
  const actual = tokens[at + 1]?.id ?? null;
  const best = useMemo(() => mostLikely(logits, SHOWN), [logits]);
  const chance = useMemo(() => probabilities(logits, temperature), [logits, temperature]);
  const shown = actual === null || best.includes(actual) ? best : [...best, actual];
  const rest = Math.max(0, shown.reduce((left, id) => left - chance(id), 1));
  const rank = actual === null ? 0 : rankOf(logits, actual);
  const verb = at + 1 < begin ? "is in the text" : "was written";
  const names = distinct(shown.map((id) => vocabulary[id] ?? `#${id}`));
  const word = (id: number) => names[shown.indexOf(id)];
  const writing = useWriting(recording, sequence, at, vocabulary);
  return (
    <div class="guesses">
      <p class="sentence" aria-live="polite">
        After <em>{namesOf(tokens)[at]}</em>, {temperature !== 1 && `at temperature ${temperature}, `}
        <em>{word(best[0])}</em> is the most likely ({weightText(chance(best[0]))}
        {actual === best[0] && `, and ${verb}`})
        {actual !== null && actual !== best[0] && (
          <>
            ; <em>{word(actual)}</em> {verb} ({weightText(chance(actual))}, rank {countText(rank)})
          </>
        )}
        {actual === null && <span class="aside"> · the text ends here</span>}
      </p>
      <table class="row bars">
        <caption>
          The most likely next tokens, of {countText(logits.length)}
          {explained(names)}
        </caption>
        <thead>
          <tr>
            <th scope="col">token</th>
            <th scope="col">probability</th>
            <th scope="col">logit</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((id) => (
            <tr key={id} class={id === actual ? "chosen" : ""}>
              <th scope="row">
                {writing.model && !isControlToken(vocabulary[id]) ? (
                  <button type="button" disabled={writing.running} title="Continue with this token" onClick={() => writing.write(vocabulary[id])}>
                    {word(id)}
                  </button>
                ) : (
                  word(id)
                )}
                {id === actual && <span class="mark">{at + 1 < begin ? "in the text" : "written"}</span>}
              </th>
              <Bar share={chance(id)} />
              <td class="logit number">{numberText(logits[id], 2)}</td>
            </tr>
          ))}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row">{countText(logits.length - shown.length)} others</th>
            <Bar share={rest} />
            <td />
          </tr>
        </tfoot>
      </table>
      <p class={writing.problem ? "failure" : "soft"} role="status">
        {writing.problem ?? (writing.running ? "Running …" : writing.model ? "Click a token to continue with it, and see what comes next." : app.live ? "" : "In a running viewer, click a token to continue from here.")}
      </p>
    </div>
  );
}

/** Runs the model on the text so far and one more token. */
function useWriting(recording: Recording, sequence: string, at: number, vocabulary: readonly string[]) {
  const app = useApp();
  const running = useSignal(false);
  const problem = useSignal<string | null>(null);
  const { manifest } = recording;
  const model = app.modelOf(manifest);
  const write = async (token: string) => {
    if (!model) return;
    const text = continued(recording.tokens(sequence), at, token, vocabulary);
    running.value = true;
    problem.value = null;
    try {
      const id = await app.record({ model: model.name, ...(sequence === "target" ? { text: manifest.text, target: text } : { text }) });
      const { attention, head } = app.selection.choice.peek();
      app.selection.choose({ recording: id, attention, head, query: at + 1, pinned: [] });
    } catch (error) {
      problem.value = reason(error);
    } finally {
      running.value = false;
    }
  };
  return { model, write, running: running.value, problem: problem.value };
}
