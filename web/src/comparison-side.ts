// The other side of a comparison, as the address keeps it: `ID*cross.2*3*0*5`. An empty field is the same as in the selection.
import { useApp } from "./app";
import { useLoaded, type Loaded } from "./loading";
import { Recording } from "./recording";
import type { Choice } from "./selection";
import type { Manifest } from "./types";

export interface Partner {
  recording: string;
  attention: string;
  head: number | null;
  /** Index into manifest.steps. */
  step: number | null;
  /** A token, for Words. */
  word: number | null;
}

/** Heads are counted from 1 in the address. */
export function readPartner(text: string): Partner {
  const [recording = "", attention = "", head = "", step = "", word = ""] = text.split("*");
  const number = (field: string) => (/^\d{1,9}$/.test(field) ? Number(field) : null);
  const counted = number(head);
  return { recording, attention, head: counted ? counted - 1 : null, step: number(step), word: number(word) };
}

export function writePartner({ recording, attention, head, step, word }: Partner): string {
  return [recording, attention, head === null ? "" : head + 1, step ?? "", word ?? ""].join("*").replace(/\*+$/, "");
}

export interface Side {
  attention: string;
  head: number;
  step: number;
}

/**
 * What a selection is compared with: what the partner names, or else the same head of another recording or of the first
 * training step, or else the next head.
 */
export function otherSide(partner: Partner, choice: Choice, manifest: Manifest, own: boolean): Side {
  const wanted = partner.attention || choice.attention;
  const attention = manifest.attentions.find((each) => each.id === wanted) ?? manifest.attentions.find((each) => each.id === manifest.begin?.attention) ?? manifest.attentions[0];
  const steps = Math.max(1, manifest.steps.length);
  const step = partner.step ?? (own && choice.step > 0 ? 0 : steps - 1);
  const elsewhere = !own || (partner.attention !== "" && partner.attention !== choice.attention) || Math.min(step, steps - 1) !== choice.step;
  const head = partner.head ?? (elsewhere ? choice.head : (choice.head + 1) % attention.heads);
  return { attention: attention.id, head: Math.min(head, attention.heads - 1), step: Math.min(step, steps - 1) };
}

/** For views: the recording of the other side; the open one where none is named. */
export function useOther(recording: Recording, id: string): Loaded<Recording> {
  const { source } = useApp();
  const own = !id || id === recording.id;
  const loaded = useLoaded(id, async () => (own ? recording : Recording.open(source, id)));
  return own ? { value: recording, error: null } : loaded;
}
