// The legend of a heat map.
import { useLayoutEffect, useRef } from "preact/hooks";
import { useApp } from "./app";
import { css, paletteOf, type Scale } from "./colour";

/** The end of a scale of signed numbers. */
const limitText = (limit: number) => (limit < 100 ? limit.toPrecision(2) : limit.toFixed(0));

/** The colours, from the least to the most. */
export function Legend({ scale, hatched }: { scale: Scale; hatched: boolean }) {
  const { dark, selection } = useApp();
  const canvas = useRef<HTMLCanvasElement>(null);
  const isDark = dark.value;
  useLayoutEffect(() => {
    const context = canvas.current?.getContext("2d");
    const colours = paletteOf(scale, isDark);
    for (let at = 0; context && at < 128; at++) {
      context.fillStyle = css(colours, at * 2);
      context.fillRect(at, 0, 1, 10);
    }
  });
  const [low, high] = scale.kind === "weight" ? ["0", "1"] : [`−${limitText(scale.limit)}`, limitText(scale.limit)];
  return (
    <span class="legend">
      {low} <canvas ref={canvas} width={128} height={10} role="img" aria-label={`Colours from ${low} to ${high}`} /> {high}
      {scale.kind === "weight" && (
        <label title="Colour shows the square root of the weight, so that small weights are visible">
          <input type="checkbox" checked={scale.root} onChange={() => selection.choose({ root: !scale.root })} /> brighten (√)
        </label>
      )}
      {hatched && (
        <span>
          <span class="hatched" aria-hidden="true" /> masked
        </span>
      )}
    </span>
  );
}
