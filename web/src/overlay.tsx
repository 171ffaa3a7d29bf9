// An image with weights over its patches: the larger the weight, the more yellow; the query has an outline.
import type { ComponentProps, RefObject } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { bitmap } from "./colour";
import { canvasOf } from "./heatmap";
import type { Manifest } from "./types";

export type Patches = NonNullable<Manifest["image"]>;

export interface OverlayProps {
  picture: ImageBitmap;
  patches: Patches;
  /** One for each token; patches begin at patches.first. */
  weights: Float32Array;
  /** 0 shows only the image, 1 only the weights. */
  opacity: number;
  /** The query. */
  query: number;
  /** Pixels of the longer side. */
  size: number;
  /** Lines between patches, and the patch under the pointer. */
  lines?: boolean;
  under?: number | null;
  canvas?: RefObject<HTMLCanvasElement | null>;
}

/** The largest weight of a patch. */
export function most(weights: Float32Array, { first }: Patches): number {
  return Math.max(0, ...weights.subarray(first));
}

export function Overlay(props: OverlayProps & Omit<ComponentProps<"canvas">, keyof OverlayProps>) {
  const { picture, patches, weights, opacity, query, size, lines, under, canvas, ...rest } = props;
  const own = useRef<HTMLCanvasElement>(null);
  const at = canvas ?? own;
  const unit = size / Math.max(patches.width, patches.height);
  useLayoutEffect(() => {
    if (at.current) draw(at.current, props);
  });
  return <canvas ref={at} width={Math.round(patches.width * unit)} height={Math.round(patches.height * unit)} {...rest} />;
}

function draw(canvas: HTMLCanvasElement, { picture, patches, weights, opacity, query, lines, under }: OverlayProps): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  const { width, height } = canvas;
  const { rows, columns, first } = patches;
  const [across, down] = [width / columns, height / rows];
  context.globalAlpha = 1;
  context.imageSmoothingEnabled = picture.width > width;
  context.drawImage(picture, 0, 0, width, height);
  context.imageSmoothingEnabled = false;
  context.globalAlpha = opacity;
  const largest = most(weights, patches) || 1;
  const shares = weights.subarray(first).map((weight) => weight / largest);
  context.drawImage(canvasOf(bitmap(shares, rows, columns, { kind: "weight", root: false }, false)), 0, 0, width, height);
  context.globalAlpha = 1;
  if (lines) {
    context.fillStyle = "rgb(255 255 255 / 25%)";
    for (let column = 1; column < columns; column++) context.fillRect(Math.round(column * across) - 1, 0, 2, height);
    for (let row = 1; row < rows; row++) context.fillRect(0, Math.round(row * down) - 1, width, 2);
  }
  const frame = (patch: number, colour: string, thick: number) => {
    context.strokeStyle = colour;
    context.lineWidth = thick;
    const [x, y] = [(patch % columns) * across, Math.floor(patch / columns) * down];
    context.strokeRect(x + thick / 2, y + thick / 2, across - thick, down - thick);
  };
  if (under != null) frame(under, "#fff", 2);
  if (query >= first) {
    frame(query - first, "#000", Math.max(3, width / 100));
    frame(query - first, "#fff", Math.max(1.5, width / 200));
  }
}
