// Heads: a thumbnail and a statistic of every head, in the order of the layers or sorted by a statistic.
import { useSignal } from "@preact/signals";
import { useApp } from "../app";
import { HeadButton } from "../head-grid";
import { useKept, useLoaded } from "../loading";
import type { Recording, Thumbnail } from "../recording";
import { headName, kindTitles } from "../sentence";
import type { StatisticName } from "../types";

type Order = "layer" | StatisticName;

const orders: { name: Order; title: string; what: string; digits: number; descending: boolean }[] = [
  { name: "layer", title: "Layer", what: "In the order of the layers.", digits: 2, descending: false },
  { name: "entropy", title: "Entropy", what: "Mean entropy of a row in bits; 0 means a single word. Most peaked first.", digits: 2, descending: false },
  { name: "distance", title: "Distance", what: "Mean distance between query and key, in tokens. Farthest first.", digits: 1, descending: true },
  { name: "previous", title: "Previous", what: "Mean weight on the previous token. Largest first.", digits: 2, descending: true },
  { name: "first", title: "First", what: "Mean weight on the first token; near 1, the head is a sink. Largest first.", digits: 2, descending: true },
];

export function statistic(thumbnail: Thumbnail, name: StatisticName, step: number): number | null {
  return thumbnail.attention.statistics[name][step]?.[thumbnail.head] ?? null;
}

export function Heads({ recording }: { recording: Recording }) {
  const wanted = useApp().selection.step.value;
  const order = useSignal<Order>("layer");
  const { value, error } = useLoaded(String(wanted), async () => ({ step: wanted, thumbnails: await recording.overview(wanted) }));
  const found = useKept(value);
  const chosen = orders.find((each) => each.name === order.value) ?? orders[0];
  if (error) return <p class="failure">{error}</p>;
  return (
    <div class="heads">
      <div class="choices" role="group" aria-label="Sort by">
        {orders.map((each) => (
          <button key={each.name} type="button" aria-pressed={each === chosen} onClick={() => (order.value = each.name)}>
            {each.title}
          </button>
        ))}
        <span class="soft">{chosen.what}</span>
      </div>
      {found && chosen.name === "layer" && <ByLayer {...found} />}
      {found && chosen.name !== "layer" && (
        <div class="cards">
          {sorted(found.thumbnails, chosen.name, found.step, chosen.descending).map((each) => (
            <Card key={`${each.attention.id} ${each.head}`} thumbnail={each} name={chosen.name as StatisticName} digits={chosen.digits} step={found.step} kind />
          ))}
        </div>
      )}
    </div>
  );
}

function ByLayer({ thumbnails, step }: { thumbnails: Thumbnail[]; step: number }) {
  const attentions = [...new Set(thumbnails.map((each) => each.attention))];
  return (
    <>
      {attentions.map((attention) => (
        <section key={attention.id}>
          <h3>
            {kindTitles[attention.kind]}, layer {attention.layer}
          </h3>
          <div class="cards">
            {thumbnails
              .filter((each) => each.attention === attention)
              .map((each) => (
                <Card key={each.head} thumbnail={each} name="entropy" digits={2} step={step} />
              ))}
          </div>
        </section>
      ))}
    </>
  );
}

interface CardProps {
  thumbnail: Thumbnail;
  name: StatisticName;
  digits: number;
  step: number;
  /** Show the kind too, since cards of several kinds are side by side. */
  kind?: boolean;
}

function Card({ thumbnail, name, digits, step, kind }: CardProps) {
  const value = statistic(thumbnail, name, step);
  return (
    <HeadButton thumbnail={thumbnail}>
      <span class="name">{headName(thumbnail.attention, thumbnail.head)}</span>
      {kind && <span class="soft">{kindTitles[thumbnail.attention.kind]}</span>}
      <span class="soft number">{value === null ? "–" : `${value.toFixed(digits)}${name === "entropy" ? " bits" : ""}`}</span>
    </HeadButton>
  );
}

/** Heads without the statistic come last. */
function sorted(thumbnails: Thumbnail[], name: StatisticName, step: number, descending: boolean): Thumbnail[] {
  const rank = (each: Thumbnail) => {
    const value = statistic(each, name, step);
    return value === null ? Infinity : descending ? -value : value;
  };
  return [...thumbnails].sort((a, b) => (rank(a) === rank(b) ? 0 : rank(a) - rank(b)));
}
