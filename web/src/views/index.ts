// The views. A view is one file here and one line in this table, in the order of the tabs.
import type { ComponentType } from "preact";
import type { Recording } from "../recording";
import type { Manifest } from "../types";
import { Arithmetic, whyNoArithmetic } from "./arithmetic";
import { Compare } from "./compare";
import { Heads } from "./heads";
import { Image, whyNoImage } from "./image";
import { Look } from "./look";
import { Next, whyNoNext } from "./next";
import { Position, whyNoPositions } from "./position";
import { Training, whyNoSteps } from "./training";
import { Words, whyNoWords } from "./words";

export interface View {
  /** In the address. */
  name: string;
  /** On the keyboard. */
  key: string;
  title: string;
  component: ComponentType<{ recording: Recording }>;
  /** Whether it has something to show; else one sentence that says why not. */
  fits(manifest: Manifest): true | string;
  /** It says in a sentence of its own what is chosen, so that the usual one is left out. */
  says?: true;
}

const attends = (manifest: Manifest): true | string => manifest.attentions.length > 0 || "This model has no attention.";

export const views: View[] = [
  { name: "look", key: "1", title: "Look", component: Look, fits: attends },
  { name: "heads", key: "2", title: "Heads", component: Heads, fits: attends },
  { name: "arithmetic", key: "3", title: "Arithmetic", component: Arithmetic, fits: whyNoArithmetic },
  { name: "words", key: "4", title: "Words", component: Words, fits: whyNoWords, says: true },
  { name: "next", key: "5", title: "Next", component: Next, fits: whyNoNext, says: true },
  { name: "position", key: "6", title: "Position", component: Position, fits: whyNoPositions, says: true },
  { name: "training", key: "7", title: "Training", component: Training, fits: whyNoSteps },
  { name: "image", key: "8", title: "Image", component: Image, fits: whyNoImage },
  { name: "compare", key: "c", title: "Compare", component: Compare, fits: attends, says: true },
];
