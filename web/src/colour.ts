// Colour maps: cividis (monotone lightness, safe for the colour-blind) for 0..1, blue to orange for signed numbers.
import { interpolateCividis } from "d3-scale-chromatic";

/** 256 colours, three bytes each. */
export type Palette = Uint8Array;

function palette(colour: (at: number) => number[]): Palette {
  const bytes = new Uint8Array(256 * 3);
  for (let at = 0; at < 256; at++) bytes.set(colour(at / 255), at * 3);
  return bytes;
}

export const weightPalette = palette((at) => (interpolateCividis(at).match(/\d+/g) ?? []).map(Number));

/** The middle is the background, so that zero is invisible. */
function signed(paper: number[], blue: number[], orange: number[]): Palette {
  return palette((at) => {
    const end = at < 0.5 ? blue : orange;
    const share = Math.abs(at - 0.5) * 2;
    return paper.map((value, channel) => Math.round(value + (end[channel] - value) * share));
  });
}

const signedLight = signed([250, 249, 246], [33, 102, 190], [214, 106, 18]);
const signedDark = signed([27, 30, 36], [96, 165, 255], [255, 158, 66]);

export function signedPalette(dark: boolean): Palette {
  return dark ? signedDark : signedLight;
}

/** How numbers become colours: weights on 0..1 (or their square root), signed numbers on -limit..limit. */
export type Scale = { kind: "weight"; root: boolean } | { kind: "signed"; limit: number };

export function paletteOf(scale: Scale, dark: boolean): Palette {
  return scale.kind === "weight" ? weightPalette : signedPalette(dark);
}

/** Index into the palette, 0..255. */
export function shade(value: number, scale: Scale): number {
  let at = scale.kind === "weight" ? (scale.root ? Math.sqrt(Math.max(0, value)) : value) : 0.5 + value / (2 * scale.limit || 1);
  if (!(at > 0)) at = 0;
  return Math.round(255 * Math.min(1, at));
}

export function css(palette: Palette, index: number): string {
  return `rgb(${palette[index * 3]},${palette[index * 3 + 1]},${palette[index * 3 + 2]})`;
}

/** One pixel per cell. */
export function bitmap(values: ArrayLike<number>, rows: number, columns: number, scale: Scale, dark: boolean): ImageData {
  const colours = paletteOf(scale, dark);
  const image = new ImageData(Math.max(1, columns), Math.max(1, rows));
  for (let at = 0; at < rows * columns; at++) {
    const index = shade(values[at], scale) * 3;
    image.data[at * 4] = colours[index];
    image.data[at * 4 + 1] = colours[index + 1];
    image.data[at * 4 + 2] = colours[index + 2];
    image.data[at * 4 + 3] = 255;
  }
  return image;
}
