// The views: one file and one line of this table each, in the order of the tabs.
import type { ComponentType } from "preact";
import type { Recording } from "../recording";
import type { Manifest } from "../types";
import { Arithmetic, whyNoArithmetic } from "./arithmetic";
import { Change, whyNoChange } from "./change";
import { Compare } from "./compare";
import { Heads } from "./heads";
import { Image, whyNoImage } from "./image";
import { Look } from "./look";
import { Next, whyNoNext } from "./next";
import { Position, whyNoPositions } from "./position";
import { States, whyNoStates } from "./states";
import { Training, whyNoSteps } from "./training";
import { Words, whyNoWords } from "./words";

export interface View {
  /** Its name in the address. */
  name: string;
  /** Its key. */
  key: string;
  title: string;
  component: ComponentType<{ recording: Recording }>;
  /** Why it has nothing to show for a recording, as one sentence; null if it has. */
  whyNot(manifest: Manifest): string | null;
  /** It describes the selection in a sentence of its own, so that the usual one is left out. */
  says?: true;
  /** It names no tokens, so that what their names mean is left out. */
  unnamed?: true;
}

const whyNoAttention = (manifest: Manifest): string | null => (manifest.attentions.length > 0 ? null : "This model has no attention.");

export const views: View[] = [
  { name: "look", key: "1", title: "Look", component: Look, whyNot: whyNoAttention },
  { name: "heads", key: "2", title: "Heads", component: Heads, whyNot: whyNoAttention },
  { name: "arithmetic", key: "3", title: "Arithmetic", component: Arithmetic, whyNot: whyNoArithmetic },
  { name: "words", key: "4", title: "Words", component: Words, whyNot: whyNoWords, says: true },
  { name: "next", key: "5", title: "Next", component: Next, whyNot: whyNoNext, says: true },
  { name: "position", key: "6", title: "Position", component: Position, whyNot: whyNoPositions, says: true, unnamed: true },
  { name: "training", key: "7", title: "Training", component: Training, whyNot: whyNoSteps },
  { name: "image", key: "8", title: "Image", component: Image, whyNot: whyNoImage },
  { name: "states", key: "9", title: "States", component: States, whyNot: whyNoStates, says: true },
  { name: "change", key: "x", title: "Change", component: Change, whyNot: whyNoChange, says: true },
  { name: "compare", key: "c", title: "Compare", component: Compare, whyNot: whyNoAttention, says: true },
];
