// Drawing a heat map: the size of cells, the bitmap with one pixel per cell, hatching, marks and labels. No component here.
import { bitmap, type Scale } from "./colour";

export interface Cell {
  row: number;
  column: number;
}

/** What is drawn; the component around it is in matrix.tsx. */
export interface Heat {
  rows: string[];
  columns: string[];
  /** rows x columns. */
  values: Float32Array;
  /** 1 for masked cells, which are hatched. */
  masked?: Uint8Array | null;
  scale: Scale;
  /** Increasing numbers of rows and columns, some of which are written where names have no room; by default their indices, from 0. */
  positions?: { rows: number[]; columns: number[] };
  /** Cells may be wider than high: for many rows and few columns. */
  wide?: boolean;
  /** Marked rows and columns. */
  marked?: { rows: number[]; columns: number[] };
  /** Cells with a border. */
  outlined?: Cell[];
}

/** The fixed convention: rows are queries, columns are keys. */
export type Axes = [rows: string, columns: string];

/** The captions of the axes: what looks at which. `read_head_weights` in regard/viewer/export.py writes the same. */
export function axesOf(queries: string, noun: string): Axes {
  return [queries === "written" ? "to write this, it looks …" : `this ${noun} looks …`, "… at these"];
}

const LABELLED = 12;
const LARGEST = 40;
const LOWEST = 4; // the height of wide cells, of which not every row has a label
const WIDEST = 80;
const FONT = "12px system-ui, sans-serif";

/** The height and width of a cell; if they are below a pixel, `block` cells (not a whole number) share one. `left` and `top` are for
 * labels: names, or positions if there is no room for names. */
export interface Layout {
  cell: number;
  width: number;
  block: number;
  left: number;
  top: number;
  named: boolean;
}

const DIGIT = 7;
const POSITIONS_HEIGHT = 20;

export function layOut({ rows, columns, positions, wide }: Heat, width: number, height: number, zoom: number): Layout {
  const longest = (texts: string[]) => Math.max(1, ...texts.slice(0, 200).map((text) => [...text].length));
  const left = Math.min(120, 14 + 7 * longest(rows));
  const top = Math.min(96, 14 + 6.4 * longest(columns));
  const across = (width - left - 2) / columns.length;
  const down = (height - top - 2) / rows.length;
  if (wide && across >= LABELLED) {
    const cell = Math.floor(Math.min(Math.max(down, LOWEST), LARGEST, across) * zoom);
    return { cell, width: Math.max(cell, Math.floor(Math.min(across, WIDEST))), block: 1, left, top, named: true };
  }
  const fit = Math.min(across, Math.max(down, LABELLED));
  if (fit * zoom >= LABELLED) return square(Math.min(Math.floor(fit * zoom), LARGEST * zoom), left, top, true);
  const margin = 10 + DIGIT * String((positions?.rows.at(-1) ?? rows.length - 1)).length;
  const unnamed = (cell: number) => square(cell, margin, POSITIONS_HEIGHT, false);
  const [broad, high] = [((width - margin - 2) / columns.length) * zoom, ((height - POSITIONS_HEIGHT - 2) / rows.length) * zoom];
  if (wide && broad >= 1 && high >= 1) return { ...unnamed(Math.floor(Math.min(high, LARGEST * zoom))), width: broad >= 2 ? Math.floor(broad) : broad };
  const bare = Math.min(broad, high);
  if (bare >= 1) return unnamed(bare >= 2 ? Math.floor(bare) : bare);
  return { ...unnamed(1), block: 1 / bare };
}

function square(cell: number, left: number, top: number, named: boolean): Layout {
  return { cell, width: cell, block: 1, left, top, named };
}

/** Which positions of an axis are written: the round ones, or the next ones after these, `apart` pixels or more from each other. */
export function ticks(positions: readonly number[], pixels: number, apart: number): number[] {
  const [first, last] = [positions[0] ?? 0, positions.at(-1) ?? 0];
  const least = ((apart / pixels) * (last + 1 - first)) / Math.max(1, positions.length);
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  const step = [1, 2, 5, 10].map((times) => times * power).find((each) => each >= least) ?? 10 * power;
  const steps = (at: number) => Math.floor(positions[at] / step);
  return [...positions.keys()].filter((at) => (at === 0 ? first % step === 0 : steps(at) > steps(at - 1)));
}

export interface Pooled {
  values: Float32Array;
  rows: number;
  columns: number;
}

/** Keep the value farthest from 0 of the cells that share a pixel, so that a peak never vanishes. */
export function pool(values: Float32Array, rows: number, columns: number, block: number): Pooled {
  if (block <= 1) return { values, rows, columns };
  const height = Math.ceil(rows / block);
  const width = Math.ceil(columns / block);
  const pooled = new Float32Array(height * width);
  const place = Int32Array.from({ length: columns }, (_, column) => Math.floor(column / block));
  for (let row = 0; row < rows; row++) {
    const begin = Math.floor(row / block) * width;
    for (let column = 0; column < columns; column++) {
      const at = begin + place[column];
      const value = values[row * columns + column];
      if (Math.abs(value) > Math.abs(pooled[at])) pooled[at] = value;
    }
  }
  return { values: pooled, rows: height, columns: width };
}

/** The colours of all cells, one pixel each. */
export function colours({ rows, columns, values, scale }: Heat, block: number, dark: boolean): HTMLCanvasElement {
  const small = pool(values, rows.length, columns.length, block);
  return canvasOf(bitmap(small.values, small.rows, small.columns, scale, dark));
}

/** The cells to hatch, one pixel each; a shared pixel is hatched if all its cells are masked. */
export function hatches({ rows, columns, masked }: Heat, block: number): HTMLCanvasElement | null {
  if (!masked) return null;
  const open = new Float32Array(masked.length);
  for (let at = 0; at < open.length; at++) open[at] = 1 - masked[at];
  const small = pool(open, rows.length, columns.length, block);
  const image = new ImageData(Math.max(1, small.columns), Math.max(1, small.rows));
  for (let at = 0; at < small.values.length; at++) image.data[at * 4 + 3] = small.values[at] ? 0 : 255;
  return canvasOf(image);
}

export interface Plate {
  picture: HTMLCanvasElement;
  hatch: HTMLCanvasElement | null;
}

export function canvasOf(image: ImageData): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = image.width;
  canvas.height = image.height;
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  return canvas;
}

interface Size {
  width: number;
  height: number;
}

/** A layout and its scroll position. */
export type Window = Layout & { x: number; y: number };

/** Draw the visible part. */
export function render(canvas: HTMLCanvasElement, at: Window, view: Size, heat: Heat, { picture, hatch }: Plate, under: Cell | null): void {
  const ratio = devicePixelRatio || 1;
  resize(canvas, view, ratio);
  canvas.style.width = `${view.width}px`;
  canvas.style.height = `${view.height}px`;
  const context = canvas.getContext("2d");
  if (!context) return;
  const style = getComputedStyle(canvas);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, view.width, view.height);
  context.save();
  context.beginPath();
  context.rect(at.left, at.top, view.width - at.left, view.height - at.top);
  context.clip();
  context.imageSmoothingEnabled = false;
  const place = [at.left - at.x, at.top - at.y, picture.width * at.width, picture.height * at.cell] as const;
  context.drawImage(picture, ...place);
  if (hatch) context.drawImage(hatching(hatch, place, view, ratio, colour("--paper"), colour("--ink-soft")), 0, 0, view.width, view.height);
  context.translate(place[0], place[1]);
  mark(context, at, heat, place[2], place[3], colour("--accent"), colour("--accent-ink"), under);
  context.restore();
  (at.named ? label : labelPositions)(context, at, view, heat, colour("--ink-soft"), colour("--accent"));
}

function resize(canvas: HTMLCanvasElement, view: Size, ratio: number): void {
  const width = Math.max(1, Math.round(view.width * ratio));
  const height = Math.max(1, Math.round(view.height * ratio));
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
}

let cover: HTMLCanvasElement | null = null;

/** Slanted lines on every masked cell, in the size of the view. */
function hatching(mask: HTMLCanvasElement, place: readonly [number, number, number, number], view: Size, ratio: number, paper: string, ink: string): HTMLCanvasElement {
  cover ??= document.createElement("canvas");
  resize(cover, view, ratio);
  const context = cover.getContext("2d");
  if (!context) return cover;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.globalCompositeOperation = "copy";
  context.fillStyle = paper;
  context.fillRect(0, 0, view.width, view.height);
  context.globalCompositeOperation = "source-over";
  context.globalAlpha = 0.35;
  context.strokeStyle = ink;
  context.beginPath();
  for (let x = ((place[0] + place[1]) % 6) - view.height; x < view.width; x += 6) {
    context.moveTo(x, view.height);
    context.lineTo(x + view.height, 0);
  }
  context.stroke();
  context.globalAlpha = 1;
  context.globalCompositeOperation = "destination-in";
  context.imageSmoothingEnabled = false;
  context.drawImage(mask, ...place);
  return cover;
}

function mark(context: CanvasRenderingContext2D, at: Window, heat: Heat, width: number, height: number, colour: string, halo: string, under: Cell | null): void {
  const down = at.cell / at.block;
  const across = at.width / at.block;
  const [high, broad] = [Math.max(down, 3), Math.max(across, 3)];
  context.strokeStyle = colour;
  context.lineWidth = 1;
  for (const { row, column } of heat.outlined ?? []) context.strokeRect(column * across + 0.5, row * down + 0.5, broad - 1, high - 1);
  context.lineWidth = 1.5;
  const frames = [
    ...(heat.marked?.rows ?? []).map((row) => [0, row * down, width, high] as const),
    ...(heat.marked?.columns ?? []).map((column) => [column * across, 0, broad, height] as const),
  ];
  // a line of the opposite lightness around it, so that a frame is seen on every colour
  const lines = [[halo, -0.75], [colour, 0.75]] as const;
  for (const [style, inside] of lines) {
    context.strokeStyle = style;
    for (const [x, y, wide, tall] of frames) context.strokeRect(x + inside, y + inside, wide - 2 * inside, tall - 2 * inside);
  }
  if (!under) return;
  context.strokeStyle = "#fff";
  context.strokeRect(under.column * across + 0.5, under.row * down + 0.5, broad - 1, high - 1);
}

function label(context: CanvasRenderingContext2D, at: Window, view: Size, heat: Heat, ink: string, strong: string): void {
  const { cell, width, left, top } = at;
  const rows = new Set(heat.marked?.rows);
  const columns = new Set(heat.marked?.columns);
  context.font = FONT;
  context.textBaseline = "middle";
  context.save();
  context.beginPath();
  context.rect(0, at.y > 0 ? top : top - 6, left, view.height); // half a label may be above the first row
  context.clip();
  context.textAlign = "right";
  const every = Math.ceil(LABELLED / cell);
  const hidden = (row: number) => !rows.has(row) && (row % every > 0 || [...rows].some((each) => Math.abs(each - row) < every));
  for (let row = Math.floor(at.y / cell); row < heat.rows.length && top + row * cell - at.y < view.height; row++) {
    if (hidden(row)) continue;
    context.fillStyle = rows.has(row) ? strong : ink;
    context.fillText(short(heat.rows[row]), left - 7, top + (row + 0.5) * cell - at.y);
  }
  context.restore();
  context.save();
  context.beginPath();
  context.rect(left, 0, view.width - left, top);
  context.clip();
  context.textAlign = "left";
  for (let column = Math.floor(at.x / width); column < heat.columns.length && left + column * width - at.x < view.width; column++) {
    context.save();
    context.translate(left + (column + 0.5) * width - at.x, top - 6);
    context.rotate(-Math.PI / 2);
    context.fillStyle = columns.has(column) ? strong : ink;
    context.fillText(short(heat.columns[column]), 0, 0);
    context.restore();
  }
  context.restore();
}

/** Round positions along both axes, and those of the marked rows and columns. */
function labelPositions(context: CanvasRenderingContext2D, at: Window, view: Size, heat: Heat, ink: string, strong: string): void {
  const rows = heat.positions?.rows ?? [...heat.rows.keys()];
  const columns = heat.positions?.columns ?? [...heat.columns.keys()];
  context.font = FONT;
  const write = (positions: number[], marked: number[], pixels: number, apart: number, put: (position: number | undefined, middle: number) => void) => {
    const middle = (index: number) => (index + 0.5) * pixels;
    context.fillStyle = strong;
    for (const index of marked) put(positions[index], middle(index));
    context.fillStyle = ink;
    for (const index of ticks(positions, pixels, apart)) {
      if (marked.every((each) => Math.abs(middle(each) - middle(index)) >= apart * 0.6)) put(positions[index], middle(index));
    }
  };
  context.textAlign = "right";
  context.textBaseline = "middle";
  write(rows, heat.marked?.rows ?? [], at.cell / at.block, 30, (position, middle) => {
    const y = at.top + middle - at.y;
    if (position !== undefined && y >= at.top && y < view.height) context.fillText(String(position), at.left - 6, Math.max(at.top + 6, Math.min(view.height - 6, y)));
  });
  context.textAlign = "center";
  write(columns, heat.marked?.columns ?? [], at.width / at.block, 44, (position, middle) => {
    const x = at.left + middle - at.x;
    if (position !== undefined && x >= at.left && x < view.width) context.fillText(String(position), Math.max(at.left + 8, Math.min(view.width - 12, x)), at.top - 9);
  });
}

function short(text: string): string {
  const characters = [...text];
  return characters.length > 16 ? `${characters.slice(0, 15).join("")}…` : text;
}
