// Points in a plane, with their words beside them where they fit.
import { useRef } from "preact/hooks";
import { useDrawing } from "./app";
import { elementSvg } from "./export";
import { textWidth } from "./text-width";
import { useWidth } from "./use-width";

export interface Point {
  x: number;
  y: number;
  text: string;
  /** Drawn as a square: of the second text. */
  second: boolean;
  /** One of the two selected words. */
  marked: boolean;
}

const MARGIN = 28;
const LINE = 15;

interface Box {
  left: number;
  top: number;
  width: number;
}

export function Scatter({ points, label, onPick }: { points: Point[]; label: string; onPick(at: number): void }) {
  const [frame, width] = useWidth<HTMLDivElement>();
  const svg = useRef<SVGSVGElement>(null);
  useDrawing(() => (svg.current ? elementSvg(svg.current) : ""));
  const { places, height } = fit(points, Math.max(200, width));
  const boxes = labels(points, places, width);
  const ends = places.filter((_, at) => points[at].marked);
  return (
    <div class="scatter" ref={frame}>
      {width > 0 && (
        <svg ref={svg} width={width} height={height} role="img" aria-label={label}>
          {ends.length === 2 && <path class="between" d={`M${ends[0].x} ${ends[0].y}L${ends[1].x} ${ends[1].y}`} />}
          {points.map((point, at) => (
            <g key={at} class={`point${point.second ? " second" : ""}${point.marked ? " marked" : ""}`} onClick={() => onPick(at)}>
              <title>{point.text}</title>
              {point.second ? (
                <rect x={places[at].x - 4} y={places[at].y - 4} width={8} height={8} />
              ) : (
                <circle cx={places[at].x} cy={places[at].y} r={4.5} />
              )}
              {boxes[at] && (
                <text x={boxes[at].left} y={boxes[at].top + 11}>
                  {point.text}
                </text>
              )}
            </g>
          ))}
        </svg>
      )}
    </div>
  );
}

/** One scale for both directions, so that distances can be compared. */
function fit(points: Point[], width: number): { places: { x: number; y: number }[]; height: number } {
  const span = (of: (point: Point) => number) => {
    const all = points.map(of);
    const low = Math.min(...all);
    return { low, size: Math.max(...all) - low };
  };
  const [x, y] = [span((point) => point.x), span((point) => point.y)];
  const space = Math.min(width, 720) - 2 * MARGIN - 44;
  const scale = Math.min(space / (x.size || 1), 340 / (y.size || 1));
  const height = Math.max(200, y.size * scale + 2 * MARGIN);
  const left = (width - x.size * scale) / 2;
  const places = points.map((point) => ({ x: left + (point.x - x.low) * scale, y: (height + y.size * scale) / 2 - (point.y - y.low) * scale }));
  return { places, height };
}

/** Where each word is written: beside, above or below its point, or not at all if it would cover another. */
export function labels(points: Point[], places: { x: number; y: number }[], width: number, measure = textWidth): (Box | undefined)[] {
  const taken: Box[] = places.map((place) => ({ left: place.x - 5, top: place.y - LINE / 2, width: 10 }));
  const boxes: (Box | undefined)[] = [];
  const order = points.map((_, at) => at).sort((a, b) => Number(points[b].marked) - Number(points[a].marked));
  for (const at of order) {
    const { x, y } = places[at];
    const wide = measure(points[at].text, 13, points[at].marked ? 650 : 400) + 2;
    const beside = (gap: number, down: number): Box[] => [
      { left: x + gap, top: y - 8 + down, width: wide },
      { left: x - gap - wide, top: y - 8 + down, width: wide },
    ];
    const over = (up: number): Box => ({ left: x - wide / 2, top: y - 8 + up, width: wide });
    const near = [...beside(8, 0), over(-15), over(15), ...beside(6, -11), ...beside(6, 11)];
    const far = points[at].marked ? [over(-29), over(29), ...beside(26, 0), ...beside(20, -24), ...beside(20, 24)] : [];
    const tries = [...near, ...far].filter((box) => box.left >= 0 && box.left + wide <= width);
    const free = tries.find((box) => !taken.some((other) => Math.abs(other.top - box.top) < LINE - 2 && other.left < box.left + wide && box.left < other.left + other.width));
    const box = free ?? (points[at].marked ? tries[0] : undefined);
    boxes[at] = box;
    if (box) taken.push(box);
  }
  return boxes;
}
