// Ribbons: at the query, a ribbon is as wide as its weight (a row fills its word exactly); at the key, ribbons are side by side.
// Words are in two rows if they fit, in two columns if they do not.
import { useRef } from "preact/hooks";
import { useApp, useDrawing } from "./app";
import { elementSvg } from "./export";
import { axesOf } from "./heatmap";
import type { Picture } from "./picture";
import { heaviest, weightText } from "./sentence";
import { textWidth } from "./text-width";
import { useWidth } from "./use-width";
import { groupOf, type Group } from "./word-groups";

const MOST = 2000;
const SIZE = 15;
const LEAST = 0.015;

interface Place {
  /** The middle of the word along its row or column, and the width that ribbons have there. */
  at: number;
  space: number;
  width: number;
}

interface Ribbon {
  query: number;
  key: number;
  weight: number;
  path: string;
}

const shortened = (text: string): string => ([...text].length > 22 ? `${[...text].slice(0, 21).join("")}…` : text);

function inRow(groups: Group[], width: number): Place[] | null {
  const widths = groups.map((group) => Math.max(18, textWidth(shortened(group.text), SIZE) + 12));
  const gap = Math.min(22, (width - widths.reduce((sum, each) => sum + each, 0)) / Math.max(1, groups.length));
  if (gap < 4) return null;
  const total = widths.reduce((sum, each) => sum + each + gap, -gap);
  let left = (width - total) / 2;
  return widths.map((each) => {
    const place = { at: left + each / 2, space: each - 4, width: each };
    left += each + gap;
    return place;
  });
}

function inColumn(groups: Group[], line: number, count: number): Place[] {
  const begin = ((count - groups.length) * line) / 2;
  return groups.map((group, index) => ({ at: begin + (index + 0.5) * line, space: line * 0.8, width: textWidth(shortened(group.text), SIZE) + 14 }));
}

/** Ribbons with their ends side by side; at a key whose weights sum to more than 1, they are narrowed to fit. */
function weave(picture: Picture, queries: Place[], keys: Place[], curve: (ends: number[]) => string): Ribbon[] {
  const { values } = picture;
  const shown: { query: number; key: number; weight: number }[] = [];
  values.forEach((weight, at) => {
    if (weight >= LEAST) shown.push({ query: Math.floor(at / keys.length), key: at % keys.length, weight });
  });
  if (shown.length > MOST) shown.sort((a, b) => b.weight - a.weight).length = MOST;
  shown.sort((a, b) => a.query - b.query || a.key - b.key);
  const sums = new Float64Array(keys.length);
  for (const each of shown) sums[each.key] += each.weight;
  const usedQuery = queries.map((place) => place.at - place.space / 2);
  const usedKey = keys.map((place, key) => place.at - (place.space * Math.min(1, sums[key])) / 2);
  return shown.map((each) => {
    const wide = queries[each.query].space * each.weight;
    const narrow = (keys[each.key].space * each.weight) / Math.max(1, sums[each.key]);
    const from = usedQuery[each.query];
    const to = usedKey[each.key];
    usedQuery[each.query] += wide;
    usedKey[each.key] += narrow;
    return { ...each, path: curve([from, from + wide, to, to + narrow]) };
  });
}

const rounded = (value: number): number => Math.round(value * 10) / 10;

function across(x0: number, x1: number): (ends: number[]) => string {
  const middle = rounded((x0 + x1) / 2);
  return (ends) => {
    const [a, b, c, d] = ends.map(rounded);
    return `M${x0} ${a}C${middle} ${a} ${middle} ${c} ${x1} ${c}V${d}C${middle} ${d} ${middle} ${b} ${x0} ${b}Z`;
  };
}

function down(y0: number, y1: number): (ends: number[]) => string {
  const middle = rounded((y0 + y1) / 2);
  return (ends) => {
    const [a, b, c, d] = ends.map(rounded);
    return `M${a} ${y0}C${a} ${middle} ${c} ${middle} ${c} ${y1}H${d}C${d} ${middle} ${b} ${middle} ${b} ${y0}Z`;
  };
}

export function Ribbons({ picture }: { picture: Picture }) {
  const app = useApp();
  const [frame, width] = useWidth<HTMLDivElement>();
  const svg = useRef<SVGSVGElement>(null);
  useDrawing(() => (svg.current ? elementSvg(svg.current) : ""));

  const plan = width > 0 ? planned(picture, width) : null;
  const row = app.row.value.value;
  const active = new Set(row?.queries.map((query) => groupOf(picture.queries, query.tokens[0])));
  const weights = row && row.keys.length === picture.keys.length ? row.values : null;
  const numbered = new Set(row && weights ? heaviest(row, 3).filter((key) => row.values[key] >= 0.05) : []);
  const key = groupOf(picture.keys, app.selection.key.value);
  const [rows, columns] = axesOf(picture.attention.queries, picture.recording.manifest.noun);
  return (
    <div class="ribbons" ref={frame}>
      {plan && (
        <svg ref={svg} width={width} height={plan.height} role="group" aria-label="Ribbons from the words that look to the words looked at">
          <text class="axis" {...plan.captions[0]}>
            {rows}
          </text>
          <text class="axis" {...plan.captions[1]}>
            {columns}
          </text>
          <g>
            {plan.ribbons.map((each) => (
              <path
                key={each.query * 4096 + each.key}
                d={each.path}
                class={active.has(each.query) ? "ribbon active" : "ribbon"}
                fill-opacity={active.has(each.query) ? 0.3 + 0.6 * Math.min(1, each.weight) : 0.1}
              />
            ))}
          </g>
          {picture.queries.map((group, index) => (
            <Word
              key={index}
              group={group}
              {...plan.query(index)}
              chosen={active.has(index)}
              reachable={active.has(index)}
              strength={0}
              onHover={(over) => (app.hover.value = over ? { query: group.tokens[0], key: null } : null)}
              onPick={(shift) => app.pick(group.tokens[0], null, shift)}
            />
          ))}
          {picture.keys.map((group, index) => (
            <Word
              key={index}
              group={group}
              {...plan.key(index)}
              chosen={false}
              reachable={index === key}
              marked={index === key}
              strength={Math.min(1, weights?.[index] ?? 0)}
              number={weights && numbered.has(index) ? weightText(weights[index]) : undefined}
              onPick={(shift) => app.pick(null, group.tokens[0], shift)}
            />
          ))}
        </svg>
      )}
    </div>
  );
}

type Anchor = "start" | "middle" | "end";
interface Spot {
  x: number;
  y: number;
  width: number;
  anchor: Anchor;
  numberAt: { x: number; y: number; "text-anchor": Anchor };
}

/** The positions of all words and ribbons. */
function planned(picture: Picture, width: number) {
  const { queries, keys } = picture;
  const top = inRow(queries, width);
  const bottom = inRow(keys, width);
  if (top && bottom) {
    const [first, second] = [58, 340];
    const ribbons = weave(picture, top, bottom, down(first + 18, second - 18));
    const caption = { x: width / 2, "text-anchor": "middle" as Anchor };
    const spot = (place: Place, y: number): Spot => ({
      x: place.at,
      y,
      width: place.width,
      anchor: "middle",
      numberAt: { x: place.at, y: y + 29, "text-anchor": "middle" },
    });
    return {
      height: 414,
      ribbons,
      captions: [{ ...caption, y: 22 }, { ...caption, y: 402 }],
      query: (index: number) => spot(top[index], first),
      key: (index: number) => spot(bottom[index], second),
    };
  }
  const count = Math.max(queries.length, keys.length);
  const line = count > 40 ? 20 : 26;
  const move = (places: Place[]) => places.map((place) => ({ ...place, at: place.at + 34 }));
  const left = move(inColumn(queries, line, count));
  const right = move(inColumn(keys, line, count));
  const widest = (places: Place[]) => Math.min(width * 0.3, Math.max(...places.map((place) => place.width)));
  const wide = Math.min(width, 760);
  const margin = (width - wide) / 2;
  const x0 = rounded(margin + widest(left) + 4);
  const x1 = rounded(margin + wide - widest(right) - 42);
  return {
    height: count * line + 44,
    ribbons: weave(picture, left, right, across(x0, x1)),
    captions: [
      { x: margin, y: 18, "text-anchor": "start" as Anchor },
      { x: margin + wide, y: 18, "text-anchor": "end" as Anchor },
    ],
    query: (index: number): Spot => ({ x: x0 - 8, y: left[index].at, width: left[index].width, anchor: "end", numberAt: { x: 0, y: 0, "text-anchor": "end" } }),
    key: (index: number): Spot => ({
      x: x1 + 8,
      y: right[index].at,
      width: right[index].width,
      anchor: "start",
      numberAt: { x: margin + wide, y: right[index].at + 4, "text-anchor": "end" },
    }),
  };
}

interface WordProps extends Spot {
  group: Group;
  chosen: boolean;
  /** Whether Tab reaches it: only one word of each side. */
  reachable: boolean;
  marked?: boolean;
  /** Its weight. */
  strength: number;
  number?: string | undefined;
  onHover?(over: boolean): void;
  onPick(shift: boolean): void;
}

function Word({ group, x, y, width, anchor, numberAt, chosen, reachable, marked, strength, number, onHover, onPick }: WordProps) {
  const begin = anchor === "middle" ? x - width / 2 : anchor === "end" ? x - width + 7 : x - 7;
  const style = ["word", chosen ? "chosen" : "", marked ? "marked" : "", group.special ? "special" : ""].join(" ");
  return (
    <g
      class={style}
      role="button"
      tabindex={reachable ? 0 : -1}
      aria-pressed={chosen || marked === true}
      onMouseEnter={() => onHover?.(true)}
      onMouseLeave={() => onHover?.(false)}
      onClick={(event) => onPick(event.shiftKey)}
      onKeyDown={(event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        onPick(event.shiftKey);
      }}
    >
      <rect x={begin} y={y - 12} width={width} height={24} rx={7} fill-opacity={chosen ? 1 : strength * 0.35} />
      <text x={x} y={y + 5} text-anchor={anchor}>
        {shortened(group.text)}
      </text>
      {number && (
        <text class="weight" {...numberAt}>
          {number}
        </text>
      )}
    </g>
  );
}
