// The upper half of the Change view: the list of changes, and the forms that add to it.
import { useSignal } from "@preact/signals";
import { useApp } from "../app";
import { describe, placeName, placeSequence, positionName, positionOf, type Change } from "../change";
import type { Recording } from "../recording";
import { headName, kindTitles } from "../sentence";
import type { AttentionInfo, Manifest } from "../types";
import { readable } from "../word-groups";

/** The list of changes: each can be switched off, moved up, or removed. */
export function Chips({ changes, manifest, set }: { changes: Change[]; manifest: Manifest; set(next: Change[]): void }) {
  const replaced = (at: number, ...by: Change[]) => [...changes.slice(0, at), ...by, ...changes.slice(at + 1)];
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
export function Controls({ recording, add }: { recording: Recording; add(change: Change): void }) {
  const { selection } = useApp();
  const attention = recording.attention(selection.attention.value);
  const scope = useSignal<"head" | "layer">("head");
  const only = useSignal(false);
  const weight = useSignal("1");
  if (!attention || !recording.manifest.places.includes(attention.id)) return null;
  const head = selection.head.value;
  const query = positionOf(attention.queries, selection.query.value, recording.manifest);
  const key = positionOf(attention.keys, selection.key.value, recording.manifest);
  const word = (sequence: string, at: number) => positionName(sequence, at, recording.manifest);
  const place: Change = { place: attention.id, ...(scope.value === "head" && { heads: [head] }) };
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
export function Vectors({ recording, add }: { recording: Recording; add(change: Change): void }) {
  const { manifest } = recording;
  const ofTokens = manifest.places.filter((place) => !recording.attention(place));
  const ofHeads = manifest.places.filter((place) => recording.attention(place));
  const [to, from] = [useSignal(ofTokens[ofTokens.length - 1] ?? ofHeads[0]), useSignal(ofTokens[0] ?? ofHeads[0])];
  const [head, otherHead] = [useSignal(0), useSignal(0)];
  const [into, origin] = [useSignal(0), useSignal(0)];
  const text = useSignal("");
  const elsewhere = text.value.trim() !== "";
  const readsText = manifest.noun !== "patch" && manifest.noun !== "step";
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
  const names = (place: string) => recording.tokens(placeSequence(place, manifest)).map((token, at) => `${readable(token.text)} (${at + 1})`);
  /** Where it can be put: the tokens, or the steps of a scene. */
  const targets = (place: string) => {
    const sequence = placeSequence(place, manifest);
    return sequence === "steps" ? [...new Set(recording.tokens(sequence).map((_, at) => positionOf(sequence, at, manifest)))].map((at) => positionName(sequence, at, manifest)) : names(place);
  };
  return (
    <details>
      <summary>Replace a vector</summary>
      <form class="ask" onSubmit={put}>
        <PlaceField title="Replace" manifest={manifest} places={[...ofTokens, ...ofHeads]} value={to.value} onPick={pick} />
        <HeadField title="head to replace" attention={recording.attention(to.value)} value={head.value} onPick={(at) => (head.value = at)} />
        <TokenField title="of" names={targets(to.value)} value={into.value} onPick={(at) => (into.value = at)} />
        <PlaceField title="by" manifest={manifest} places={isHead ? ofHeads : ofTokens} value={from.value} onPick={(place) => ([from.value, otherHead.value, origin.value] = [place, 0, 0])} />
        <HeadField title="head to copy" attention={recording.attention(from.value)} value={otherHead.value} onPick={(at) => (otherHead.value = at)} />
        {elsewhere ? (
          <label class="field">
            <span>token number</span>
            <input type="text" inputMode="numeric" size={4} value={origin.value + 1} onInput={(event) => (origin.value = Math.max(0, Math.trunc(Number(event.currentTarget.value)) - 1 || 0))} />
          </label>
        ) : (
          <TokenField title="of" names={names(from.value)} value={origin.value} onPick={(at) => (origin.value = at)} />
        )}
        {readsText && (
          <label class="field grow">
            <span>in another text (optional)</span>
            <input type="text" value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
          </label>
        )}
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

function TokenField({ title, names, value, onPick }: { title: string; names: string[]; value: number; onPick(at: number): void }) {
  return (
    <label class="field">
      <span>{title}</span>
      <select value={String(value)} onChange={(event) => onPick(Number(event.currentTarget.value))}>
        {names.map((name, at) => (
          <option key={at} value={String(at)}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}
