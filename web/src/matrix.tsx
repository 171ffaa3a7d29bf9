// The heat map: rows are queries, columns are keys. The matrix may be of any size: the canvas covers only the visible part and is
// redrawn on scrolling, from a bitmap with one pixel per cell.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { useApp } from "./app";
import { colours, hatches, layOut, render, type Axes, type Cell, type Heat } from "./heatmap";
import { Legend } from "./legend";
import { numberText, weightText } from "./sentence";

const SCROLLBAR = 16;

export interface MatrixProps extends Heat {
  /** What it shows, for screen readers. */
  label: string;
  /** On the axes. */
  captions: Axes;
  /** The name of a cell, under the picture; by default its two words. */
  describe?(cell: Cell): string;
  /** Where a screen reader finds the numbers. */
  instead?: string;
  onHover?(cell: Cell | null): void;
  onPick?(cell: Cell, shift: boolean): void;
}

export function Matrix(props: MatrixProps) {
  const app = useApp();
  const dark = app.dark.value;
  const scroller = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [size, setSize] = useState({ width: 640, height: 480 });
  const [zoom, setZoom] = useState(1);
  const [under, setUnder] = useState<Cell | null>(null);
  const { values, masked, rows, columns, scale } = props;

  useLayoutEffect(() => {
    const frame = scroller.current?.parentElement;
    if (!frame) return;
    const page = frame.closest<HTMLElement>(".regard");
    const room = () => (page?.style.height ? page.clientHeight : innerHeight); // a widget may have a height of its own
    const measure = () => setSize({ width: frame.clientWidth, height: Math.max(320, Math.min(room() * 0.62, 720)) });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(frame);
    return () => observer.disconnect();
  }, []);

  const layout = layOut(props, size.width, size.height, zoom);
  const { cell, width, block, left, top } = layout;
  const picture = useMemo(() => colours(props, block, dark), [values, columns.length, block, dark, JSON.stringify(scale)]);
  const hatch = useMemo(() => hatches(props, block), [masked, columns.length, block]);
  const full = { width: left + Math.ceil(columns.length / block) * width, height: top + Math.ceil(rows.length / block) * cell };
  const view = { width: Math.min(full.width, size.width), height: Math.min(full.height, size.height) };
  const pane = { width: Math.min(view.width + (full.height > view.height ? SCROLLBAR : 0), size.width), height: view.height }; // the bar hides no column

  const draw = () => {
    const element = canvas.current;
    const pane = scroller.current;
    if (element && pane) render(element, { ...layout, x: pane.scrollLeft, y: pane.scrollTop }, view, props, { picture, hatch }, under);
  };
  useLayoutEffect(draw);

  const cellAt = (event: MouseEvent) => {
    const pane = scroller.current;
    const box = canvas.current?.getBoundingClientRect();
    if (!pane || !box) return null;
    const row = Math.floor(((event.clientY - box.top - top + pane.scrollTop) / cell) * block);
    const column = Math.floor(((event.clientX - box.left - left + pane.scrollLeft) / width) * block);
    const inside = event.clientY - box.top >= top && event.clientX - box.left >= left && row < rows.length && column < columns.length;
    return inside ? { row, column } : null;
  };
  const move = (event: MouseEvent) => {
    const at = cellAt(event);
    if (at?.row === under?.row && at?.column === under?.column) return;
    setUnder(at);
    props.onHover?.(at);
  };
  const leave = () => {
    setUnder(null);
    props.onHover?.(null);
  };
  const click = (event: MouseEvent) => {
    const at = cellAt(event);
    if (at) props.onPick?.(at, event.shiftKey);
  };
  useEffect(() => leave, []);

  if (!rows.length || !columns.length) return <p class="failure">Everything is hidden; show special tokens again.</p>;
  const [rowCaption, columnCaption] = props.captions;
  return (
    <figure class="matrix">
      <div class="axes" aria-hidden="true">
        <span>↓ {rowCaption}</span>
        <span>{columnCaption} →</span>
      </div>
      <div class="pane" ref={scroller} style={{ width: `${pane.width}px`, height: `${pane.height}px` }} onScroll={draw}>
        <div style={{ width: `${full.width}px`, height: `${full.height}px` }}>
          <canvas
            ref={canvas}
            role="img"
            tabIndex={0}
            aria-label={`${props.label}. Rows: ${rowCaption} Columns: ${columnCaption} ${props.instead ?? "The table has the numbers; keys J, K, H and L move."}`}
            onMouseMove={move}
            onMouseLeave={leave}
            onClick={click}
          />
        </div>
      </div>
      <figcaption>
        <Legend scale={scale} hatched={masked != null} />
        <span class="zoom">
          <button type="button" aria-label="Smaller cells" disabled={zoom <= 1} onClick={() => setZoom(zoom / 2)}>
            −
          </button>
          <button type="button" aria-label="Larger cells" disabled={cell >= 48} onClick={() => setZoom(zoom * 2)}>
            +
          </button>
        </span>
        <span class="under">
          {under && props.describe && `${props.describe(under)}: ${cellText(props, under)}`}
          {under && !props.describe && (
            <>
              <em>{rows[under.row]}</em> → <em>{columns[under.column]}</em> {cellText(props, under)}
            </>
          )}
        </span>
      </figcaption>
    </figure>
  );
}

function cellText(props: MatrixProps, { row, column }: Cell): string {
  const at = row * props.columns.length + column;
  if (props.masked?.[at]) return "masked";
  return props.scale.kind === "weight" ? weightText(props.values[at], 3) : numberText(props.values[at]);
}
