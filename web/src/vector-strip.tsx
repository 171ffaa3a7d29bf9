// A vector as a strip of coloured cells. Hovering, or the arrow keys when it has the focus, reads its numbers.
import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { useApp } from "./app";
import { bitmap, type Scale } from "./colour";
import "./numbers.css";
import { numberText } from "./sentence";

export interface VectorStripProps {
  /** The name before the strip. */
  name: preact.ComponentChildren;
  /** The same for screen readers. */
  label: string;
  values: ArrayLike<number>;
  scale: Scale;
  /** The name of a cell: "dimension 3". */
  cell?(at: number): string;
  /** 1 for masked cells, which are hatched. */
  masked?: ArrayLike<number> | null;
  onPick?(at: number): void;
}

const FIRST = 4;

/** The number farthest from 0: the end of the colour scale. */
export function reach(...vectors: ArrayLike<number>[]): number {
  let most = 0;
  for (const values of vectors) for (let at = 0; at < values.length; at++) most = Math.max(most, Math.abs(values[at]));
  return most || 1;
}

export function VectorStrip({ name, label, values, scale, cell, masked, onPick }: VectorStripProps) {
  const dark = useApp().dark.value;
  const canvas = useRef<HTMLCanvasElement>(null);
  const at = useSignal<number | null>(null);
  const size = values.length;
  useLayoutEffect(() => {
    const image = bitmap(values, 1, size, scale, dark);
    for (let place = 0; masked && place < size; place++) if (masked[place]) image.data[place * 4 + 3] = 0;
    canvas.current?.getContext("2d")?.putImageData(image, 0, 0);
  });
  const point = (event: MouseEvent) => {
    const box = canvas.current?.getBoundingClientRect();
    if (box) at.value = Math.max(0, Math.min(size - 1, Math.floor(((event.clientX - box.left) / box.width) * size)));
    return at.value ?? 0;
  };
  const press = (event: KeyboardEvent) => {
    const now = at.value ?? 0;
    const next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: size - 1 }[event.key];
    if (next !== undefined) at.value = Math.max(0, Math.min(size - 1, next));
    else if (onPick && (event.key === "Enter" || event.key === " ")) onPick(now);
    else return;
    event.preventDefault();
  };
  const text = (place: number) => (masked?.[place] ? "masked" : numberText(values[place]));
  const under = at.value !== null && at.value < size ? at.value : null;
  return (
    <div class="strip">
      <span class="name">{name}</span>
      <span class="cells">
        <canvas
          ref={canvas}
          width={size}
          height={1}
          role="img"
          tabIndex={0}
          aria-label={`${label}: ${size} numbers. Left and right arrow read them.`}
          onMouseMove={point}
          onMouseLeave={() => (at.value = null)}
          onClick={(event) => onPick?.(point(event))}
          onFocus={() => (at.value ??= 0)}
          onBlur={() => (at.value = null)}
          onKeyDown={press}
        />
        {under !== null && <i style={{ left: `${(under / size) * 100}%`, width: `${100 / size}%` }} />}
      </span>
      <output class="number">
        {under === null ? (
          <>
            {Array.from({ length: Math.min(FIRST, size) }, (_, place) => text(place)).join("  ")}
            {size > FIRST && " …"}
          </>
        ) : (
          <b>
            {cell?.(under) ?? `dimension ${under}`}: {text(under)}
          </b>
        )}
      </output>
    </div>
  );
}
