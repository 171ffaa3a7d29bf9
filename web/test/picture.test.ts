// Colours, pooling and export.
import { describe, expect, it } from "vitest";
import { shade, signedPalette, weightPalette } from "../src/colour";
import { escapeXml, matrixSvg, pictureCsv } from "../src/export";
import { axesOf, layOut, pool } from "../src/heatmap";
import type { Picture } from "../src/picture";
import { weightText } from "../src/sentence";
import { noise } from "./fake";

describe("colours", () => {
  const lightness = (at: number) => {
    const linear = [...weightPalette.subarray(at * 3, at * 3 + 3)].map((byte) => (byte / 255 <= 0.04045 ? byte / 255 / 12.92 : ((byte / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };

  it("grow lighter with the weight", () => {
    for (let at = 4; at < 256; at += 4) expect(lightness(at)).toBeGreaterThan(lightness(at - 4));
  });

  it("put 0 and 1 at the ends, and clamp what is outside", () => {
    const scale = { kind: "weight", root: false } as const;
    expect([-1, 0, 0.5, 1, 7, NaN].map((value) => shade(value, scale))).toEqual([0, 0, 128, 255, 255, 0]);
    expect(shade(0.25, { kind: "weight", root: true })).toBe(128);
  });

  it("of signed numbers are blue below, neutral at 0, orange above", () => {
    const scale = { kind: "signed", limit: 2 } as const;
    expect([-2, 0, 2].map((value) => shade(value, scale))).toEqual([0, 128, 255]);
    const colours = signedPalette(false);
    expect(colours[2]).toBeGreaterThan(colours[0]);
    expect(colours[255 * 3]).toBeGreaterThan(colours[255 * 3 + 2]);
    expect(Math.min(...colours.subarray(128 * 3, 128 * 3 + 3))).toBeGreaterThan(240);
  });
});

describe("pooling", () => {
  it.each([1.5, 2, 2.7, 10])("never loses a peak (%d)", (block) => {
    const random = noise(3);
    const values = Float32Array.from({ length: 37 * 53 }, () => random() - 0.5);
    values[1234] = -4;
    const pooled = pool(values, 37, 53, block);
    expect(pooled.values).toHaveLength(pooled.rows * pooled.columns);
    expect(pooled.values[Math.floor(Math.floor(1234 / 53) / block) * pooled.columns + Math.floor((1234 % 53) / block)]).toBe(-4);
  });

  it("is used only where cells would be below a pixel", () => {
    const heat = (size: number) => ({ rows: Array<string>(size).fill("w"), columns: Array<string>(size).fill("w"), values: new Float32Array(), scale: { kind: "weight", root: false } as const });
    expect(layOut(heat(20), 700, 500, 1)).toMatchObject({ block: 1, named: true });
    expect(layOut(heat(200), 700, 500, 1)).toMatchObject({ cell: 2, block: 1, named: false });
    const tall = { ...heat(96), columns: Array<string>(8).fill("w") };
    expect(layOut(tall, 1300, 600, 1)).toMatchObject({ cell: 12, width: 12 });
    expect(layOut({ ...tall, wide: true }, 1300, 600, 1)).toMatchObject({ cell: 6, width: 80, block: 1 });
    const large = layOut(heat(1024), 700, 500, 1);
    expect(large.cell).toBe(1);
    expect(1024 / large.block).toBeLessThanOrEqual(500);
  });
});

const group = (text: string, token: number) => ({ text, name: text, tokens: [token], special: false });
const evil = '</script><img src=x onerror="alert(1)">';

describe("an export", () => {
  it("is a CSV with quoted names and empty masked cells", () => {
    const picture = { queries: [group('a"b', 0), group("c,d", 1)], keys: [group("x", 0), group("y", 1)], values: Float32Array.of(1, 0, 0.25, 0.75), masked: Uint8Array.of(0, 1, 0, 0) };
    expect(pictureCsv(picture as unknown as Picture)).toBe(',"x","y"\r\n"a""b",1,\r\n"c,d",0.25,0.75\r\n');
  });

  it("is a table without formulas", () => {
    const picture = { queries: [{ text: "=1+1" }, { text: "-1" }], keys: [{ text: "@SUM(A1)" }, { text: "a=b" }], values: Float32Array.of(1, 0, 0, 1), masked: null };
    expect(pictureCsv(picture as unknown as Picture)).toBe(`,"'@SUM(A1)","a=b"\r\n"'=1+1",1,0\r\n"'-1",0,1\r\n`);
  });

  it("is an SVG with round positions where there is no room for names", () => {
    const many = Array.from({ length: 20 }, (_, at) => `n${at}`);
    const positions = { rows: Array.from({ length: 200 }, (_, at) => at + 1), columns: many.map((_, at) => at + 1) };
    const size = { rows: Array<string>(200).fill("w"), columns: many, values: new Float32Array(4000), scale: { kind: "weight", root: false } as const };
    const svg = matrixSvg({ ...size, label: "a head", captions: axesOf("tokens", "word"), positions }, false);
    const texts = [...svg.matchAll(/<text x[^>]*>(\d+)</g)].map((found) => Number(found[1]));
    expect(texts).toEqual([...Array.from({ length: 40 }, (_, at) => 5 * (at + 1)), 10, 20]);
  });

  it("is an SVG in which text is only text", () => {
    const svg = matrixSvg({ label: evil, captions: axesOf("tokens", "word"), rows: [evil], columns: ["y\u0000"], values: Float32Array.of(0.5), masked: null, scale: { kind: "weight", root: false } }, false);
    expect(svg).not.toContain("<img");
    expect(svg).not.toContain("</script");
    expect(svg).not.toContain("\u0000");
    expect(svg.match(/<rect /g)).toHaveLength(2);
  });

  it("outlines cells", () => {
    const heat = { rows: ["a", "b"], columns: ["a", "b"], values: new Float32Array(4), masked: null, scale: { kind: "weight", root: false } as const };
    const svg = matrixSvg({ label: "contacts", captions: axesOf("tokens", "word"), ...heat, outlined: [{ row: 0, column: 1 }] }, false);
    expect(svg.match(/fill="none" stroke=/g)).toHaveLength(1);
  });

  it("escapes for XML", () => expect(escapeXml(`<&>"'`)).toBe("&#60;&#38;&#62;&#34;&#39;"));
});

it.each([
  [0.834, 2, "0.83"],
  [0.0003, 2, "<0.01"],
  [0.0003, 3, "<0.001"],
  [0, 2, "0.00"],
  [1, 3, "1.000"],
])("%d with %i digits is %s", (weight, digits, text) => expect(weightText(weight, digits)).toBe(text));
