// Export: SVG, PNG and CSV are made here, the one-file page by the server.
import { bitmap, css, paletteOf, shade } from "./colour";
import { canvasOf, ticks } from "./heatmap";
import type { MatrixProps } from "./matrix";
import type { Picture } from "./picture";

const SVG = "http://www.w3.org/2000/svg";
const FEW = 64 * 64;
const LABELLED = 9;

export function escapeXml(text: string): string {
  return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd").replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
}

/** An SVG element of the page as a document of its own, with its computed styles written into it. */
export function elementSvg(element: SVGSVGElement): string {
  const copy = element.cloneNode(true) as SVGSVGElement;
  const styled = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "paint-order", "opacity", "font-size", "font-family", "font-weight", "text-anchor", "dominant-baseline"];
  const originals = [element, ...element.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((each, index) => {
    const style = getComputedStyle(originals[index]);
    for (const name of styled) each.setAttribute(name, style.getPropertyValue(name));
    for (const name of ["class", "style", "tabindex", "role", "aria-label", "aria-pressed"]) each.removeAttribute(name);
  });
  const { width, height } = element.getBoundingClientRect();
  const paper = document.createElementNS(SVG, "rect");
  paper.setAttribute("width", "100%");
  paper.setAttribute("height", "100%");
  paper.setAttribute("fill", getComputedStyle(element).getPropertyValue("--paper").trim() || "#fff");
  copy.prepend(paper);
  copy.setAttribute("xmlns", SVG);
  copy.setAttribute("width", String(width));
  copy.setAttribute("height", String(height));
  return new XMLSerializer().serializeToString(copy);
}

/** The width and height of a cell. Cells are square, except where many rows and few columns would make a stripe. */
function cellSize({ rows, columns, wide }: MatrixProps): [across: number, down: number] {
  const cell = Math.max(1, Math.min(20, 1200 / Math.max(rows.length, columns.length)));
  return wide ? [Math.max(cell, Math.min(60, 900 / columns.length)), cell] : [cell, cell];
}

/** A heat map as an SVG document: rectangles for a small one, a picture inside for a large one. */
export function matrixSvg(props: MatrixProps, dark: boolean): string {
  const { rows, columns, values, masked, scale } = props;
  const [across, down] = cellSize(props);
  const labelled = across >= LABELLED;
  const longest = (texts: string[]) => 6.5 * Math.max(1, ...texts.map((text) => [...text].length));
  const positions = props.positions ?? { rows: [...rows.keys()], columns: [...columns.keys()] };
  const left = labelled ? 36 + longest(rows) : 36 + longest(positions.rows.slice(-1).map(String));
  const top = labelled ? 36 + longest(columns) : 36;
  const width = Math.max(left + 80, left + columns.length * across + 20);
  const height = Math.max(top + 100, top + rows.length * down + 20);
  const ink = dark ? "#d8d9dc" : "#33363c";
  const palette = paletteOf(scale, dark);
  const parts = [
    `<svg xmlns="${SVG}" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="system-ui, sans-serif" font-size="11" fill="${ink}">`,
    `<title>${escapeXml(props.label)}</title>`,
    `<rect width="100%" height="100%" fill="${dark ? "#15171b" : "#ffffff"}"/>`,
    `<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0V5" stroke="${ink}" stroke-opacity="0.4"/></pattern></defs>`,
  ];
  if (rows.length * columns.length <= FEW) {
    values.forEach((value, at) => {
      const place = `x="${left + (at % columns.length) * across}" y="${top + Math.floor(at / columns.length) * down}" width="${across}" height="${down}"`;
      parts.push(`<rect ${place} fill="${masked?.[at] ? "url(#hatch)" : css(palette, shade(value, scale))}"/>`);
    });
  } else {
    const pixels = bitmap(values, rows.length, columns.length, scale, dark);
    masked?.forEach((hidden, at) => hidden && (pixels.data[at * 4 + 3] = 0));
    const whole = `x="${left}" y="${top}" width="${columns.length * across}" height="${rows.length * down}"`;
    if (masked) parts.push(`<rect ${whole} fill="url(#hatch)"/>`);
    parts.push(`<image ${whole} preserveAspectRatio="none" style="image-rendering:pixelated" href="${canvasOf(pixels).toDataURL("image/png")}"/>`);
  }
  for (const { row, column } of props.outlined ?? []) {
    parts.push(`<rect x="${left + column * across}" y="${top + row * down}" width="${across}" height="${down}" fill="none" stroke="#d9622b"/>`);
  }
  const [rowCaption, columnCaption] = props.captions;
  parts.push(`<text x="${left}" y="14">${escapeXml(columnCaption)} →</text>`);
  parts.push(`<text transform="translate(14 ${top}) rotate(-90)" text-anchor="end">← ${escapeXml(rowCaption)}</text>`);
  if (labelled) {
    const every = Math.ceil(LABELLED / down);
    rows.forEach((text, row) => row % every === 0 && parts.push(`<text x="${left - 6}" y="${top + (row + 0.5) * down + 4}" text-anchor="end">${escapeXml(text)}</text>`));
    columns.forEach((text, column) =>
      parts.push(`<text transform="translate(${left + (column + 0.5) * across + 4} ${top - 6}) rotate(-90)">${escapeXml(text)}</text>`),
    );
  } else {
    for (const row of ticks(positions.rows, down, 24)) parts.push(`<text x="${left - 6}" y="${top + (row + 0.5) * down + 4}" text-anchor="end">${positions.rows[row]}</text>`);
    for (const column of ticks(positions.columns, across, 44)) parts.push(`<text x="${left + (column + 0.5) * across}" y="${top - 6}" text-anchor="middle">${positions.columns[column]}</text>`);
  }
  parts.push("</svg>");
  return parts.join("\n");
}

/** A canvas on the page inside an SVG document. */
export function canvasSvg(canvas: HTMLCanvasElement): string {
  const { width, height } = canvas.getBoundingClientRect();
  return `<svg xmlns="${SVG}" width="${width}" height="${height}"><image width="${width}" height="${height}" href="${canvas.toDataURL("image/png")}"/></svg>`;
}

/** What a cell begins with that a spreadsheet evaluates. */
const FORMULA = /^(\s*[=+\-@＝＋－＠]|[\t\r])/;

/** A float32 number with as many digits as tell it apart from all others, but 6 at least. */
function floatText(value: number): string {
  const digits = [6, 7, 8].find((count) => Math.fround(Number(value.toPrecision(count))) === value) ?? 9;
  return String(Number(value.toPrecision(digits)));
}

/** The head as a table: a line for each query, a column for each key; masked cells are empty. A token that a spreadsheet would
 * read as a formula begins with a quote, as in viewer/export.py. */
export function pictureCsv(picture: Picture): string {
  const quote = (text: string) => `"${FORMULA.test(text) ? "'" : ""}${text.replace(/"/g, '""')}"`;
  const lines = [["", ...picture.keys.map((key) => quote(key.text))]];
  picture.queries.forEach((query, row) => {
    const cells = picture.keys.map((_, column) => {
      const at = row * picture.keys.length + column;
      return picture.masked?.[at] ? "" : floatText(picture.values[at]);
    });
    lines.push([quote(query.text), ...cells]);
  });
  return lines.map((line) => `${line.join(",")}\r\n`).join("");
}

/** The SVG document drawn twice as large, as a PNG file. */
export async function rasterise(svg: string): Promise<Blob> {
  const address = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = image.width * 2;
    canvas.height = image.height * 2;
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) =>
      canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The browser could not make the picture."))), "image/png"),
    );
  } finally {
    URL.revokeObjectURL(address);
  }
}

export function download(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
