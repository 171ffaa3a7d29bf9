// The width of a text in pixels, as the page draws it.
let measuring: CanvasRenderingContext2D | null = null;

export function textWidth(text: string, size: number, weight = 400): number {
  measuring ??= document.createElement("canvas").getContext("2d");
  if (!measuring) return text.length * size * 0.55;
  measuring.font = `${weight} ${size}px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif`;
  return measuring.measureText(text).width;
}
