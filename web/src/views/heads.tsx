// Heads: a thumbnail and a statistic of every head, in the order of the layers or sorted by a statistic.
import { useSignal } from "@preact/signals";
import { useApp } from "../app";
import { HeadButton } from "../head-grid";
import { useKept, useLoaded } from "../loading";
import type { Recording, Thumbnail } from "../recording";
import { headName, kindTitles } from "../sentence";
import type { StatisticName } from "../types";

type Order = "layer" | StatisticName | "importance" | "matching" | "induction";

interface OrderInfo {
  name: Order;
  title: string;
  what: string;
  digits: number;
  descending: boolean;
}

const orders: OrderInfo[] = [
  { name: "layer", title: "Layer", what: "In the order of the layers.", digits: 2, descending: false },
  { name: "entropy", title: "Entropy", what: "Mean entropy of a row in bits; 0 means a single word. Most peaked first.", digits: 2, descending: false },
  { name: "distance", title: "Distance", what: "Mean distance between query and key, in tokens. Farthest first.", digits: 1, descending: true },
  { name: "previous", title: "Previous", what: "Mean weight on the previous token. Largest first.", digits: 2, descending: true },
  { name: "first", title: "First", what: "Mean weight on the first token; near 1, the head is a sink. Largest first.", digits: 2, descending: true },
];

/** What only a model in memory can say: the importance of a head, and its behaviour on a probe text. */
const measured: OrderInfo[] = [
  { name: "importance", title: "Importance", what: "By how much the loss of this input rises without the head, in nats. Largest first.", digits: 4, descending: true },
  { name: "matching", title: "Matching", what: "Of random tokens that are read twice: mean weight on the same token before. Largest first.", digits: 2, descending: true },
  { name: "induction", title: "Induction", what: "Of random tokens that are read twice: mean weight on the token after the same token before. Largest first.", digits: 2, descending: true },
];

type Score = (thumbnail: Thumbnail) => number | null;

export function statistic(thumbnail: Thumbnail, name: StatisticName, step: number): number | null {
  return thumbnail.attention.statistics[name][step]?.[thumbnail.head] ?? null;
}

export function Heads({ recording }: { recording: Recording }) {
  const app = useApp();
  const wanted = app.selection.step.value;
  const order = useSignal<Order>("layer");
  const { value, error } = useLoaded(String(wanted), async () => ({ step: wanted, thumbnails: await recording.overview(wanted) }));
  const found = useKept(value);
  const shown = app.live && recording.manifest.places.length ? [...orders, ...measured] : orders;
  const chosen = shown.find((each) => each.name === order.value) ?? orders[0];
  const probes = measured.includes(chosen);
  const { value: scores, error: trouble } = useLoaded(probes ? recording.id : "", async () => (probes ? (await app.headScores(recording.id)).scores : {}));
  if (error) return <p class="failure">{error}</p>;
  const score: Score = (each) => (probes ? (scores?.[chosen.name]?.[each.attention.id]?.[each.head] ?? null) : statistic(each, chosen.name as StatisticName, found?.step ?? 0));
  return (
    <div class="heads">
      <div class="choices" role="group" aria-label="Sort by">
        {shown.map((each) => (
          <button key={each.name} type="button" aria-pressed={each === chosen} onClick={() => (order.value = each.name)}>
            {each.title}
          </button>
        ))}
        <span class="soft">{chosen.what}</span>
      </div>
      {trouble && <p class="failure">{trouble}</p>}
      {probes && !scores && !trouble && <p class="soft">Measuring …</p>}
      {probes && scores && !scores[chosen.name] && <p class="soft">This cannot be measured for this model and input.</p>}
      {found && chosen.name === "layer" && <ByLayer {...found} />}
      {found && chosen.name !== "layer" && (!probes || scores?.[chosen.name]) && (
        <div class="cards">
          {sorted(found.thumbnails, score, chosen.descending).map((each) => (
            <Card key={`${each.attention.id} ${each.head}`} thumbnail={each} value={score(each)} digits={chosen.digits} bits={chosen.name === "entropy"} kind />
          ))}
        </div>
      )}
    </div>
  );
}

function ByLayer({ thumbnails, step }: { thumbnails: Thumbnail[]; step: number }) {
  const attentions = [...new Set(thumbnails.map((each) => each.attention))];
  const kinds = [...new Set(attentions.map((each) => each.kind))].map((kind) => attentions.filter((each) => each.kind === kind));
  return (
    <>
      {kinds.map((layers) => (
        <div key={layers[0].kind} class="layers" style={{ "--heads": String(Math.max(...layers.map((each) => each.heads))) }}>
          {layers.map((attention) => (
            <section key={attention.id}>
              <h3>
                {kindTitles[attention.kind]}, layer {attention.layer}
              </h3>
              <div class="cards">
                {thumbnails
                  .filter((each) => each.attention === attention)
                  .map((each) => (
                    <Card key={each.head} thumbnail={each} value={statistic(each, "entropy", step)} digits={2} bits />
                  ))}
              </div>
            </section>
          ))}
        </div>
      ))}
    </>
  );
}

/** With a real minus, but not before a zero. */
function rounded(value: number, digits: number): string {
  const text = Math.abs(value).toFixed(digits);
  return value < 0 && Number(text) > 0 ? `−${text}` : text;
}

interface CardProps {
  thumbnail: Thumbnail;
  value: number | null;
  digits: number;
  /** The value is in bits. */
  bits?: boolean;
  /** Show the kind too, since cards of several kinds are side by side. */
  kind?: boolean;
}

function Card({ thumbnail, value, digits, bits, kind }: CardProps) {
  return (
    <HeadButton thumbnail={thumbnail}>
      <span class="name">{headName(thumbnail.attention, thumbnail.head)}</span>
      {kind && <span class="soft">{kindTitles[thumbnail.attention.kind]}</span>}
      <span class="soft number">{value === null ? "–" : `${rounded(value, digits)}${bits ? " bits" : ""}`}</span>
    </HeadButton>
  );
}

/** Heads without the score come last. */
function sorted(thumbnails: Thumbnail[], score: Score, descending: boolean): Thumbnail[] {
  const rank = (each: Thumbnail) => {
    const value = score(each);
    return value === null ? Infinity : descending ? -value : value;
  };
  return [...thumbnails].sort((a, b) => (rank(a) === rank(b) ? 0 : rank(a) - rank(b)));
}
