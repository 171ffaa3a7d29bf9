import { describe, expect, it } from "vitest";
import { clamp, nothing, read, Selection, write, type Choice } from "../src/selection";
import type { Manifest } from "../src/types";
import { fakeFiles } from "./fake";

const files = fakeFiles();
const manifest = (id: string) => JSON.parse(new TextDecoder().decode(files.get(`recordings/${id}/manifest.json`))) as Manifest;
const translator = manifest("translator");
const speech = manifest("speech");

describe("clamp", () => {
  it("begins where the manifest says", () => {
    expect(clamp(nothing, translator)).toMatchObject({ attention: "cross.2", head: 0, query: 9, key: 8, step: 0 });
  });

  it("begins at the last training step", () => {
    expect(clamp(nothing, speech)).toMatchObject({ attention: "self.1", head: 1, step: 3 });
  });

  it("keeps to what exists", () => {
    const choice: Choice = { ...nothing, attention: "encoder.1", head: 99, query: -4, key: 1e9, step: 7, pinned: [2, 2, 400, -1] };
    expect(clamp(choice, translator)).toMatchObject({ attention: "encoder.1", head: 3, query: 0, key: 10, step: 0, pinned: [2] });
  });

  it("has nothing to choose in a model without attention", () => {
    expect(clamp({ ...nothing, attention: "self.1", head: 3 }, manifest("none"))).toMatchObject({ attention: "", head: 0, query: 0 });
  });
});

describe("the address", () => {
  it("round trips", () => {
    const choice: Choice = {
      recording: "a b&c=d#é",
      view: "heads",
      attention: "cross.2",
      head: 2,
      query: 3,
      key: 5,
      step: 1,
      pinned: [1, 4],
      merge: true,
      hide: true,
      renormalise: true,
      root: true,
      map: true,
      partner: "other&x",
      changes: '[{"place":"self.1"}]',
    };
    expect(read(`#${write(choice)}`)).toEqual(choice);
    const plain = { ...nothing, recording: "x", attention: "self.1" };
    expect({ ...choice, ...read(`#${write(plain)}`) }).toEqual(plain);
  });

  it("counts heads from 1", () => {
    expect(write({ ...nothing, recording: "x", attention: "self.1" })).toContain("head=1&query=0&key=0&step=0");
  });

  it("ignores what it cannot read", () => {
    expect(read("#head=two&query=-3&key=1e5&step=&view=")).not.toHaveProperty("head");
    expect(read("")).toEqual({});
    expect(read("#query=99999999999999999999")).not.toHaveProperty("query");
  });
});

describe("Selection", () => {
  it("is clamped at once when a recording is open", () => {
    const selection = new Selection();
    selection.choose({ recording: "translator" });
    selection.settle(translator);
    selection.choose({ head: 50 });
    expect(selection.head.value).toBe(3);
    selection.choose({ attention: "decoder.4", query: 3 });
    expect(selection.choice.value).toMatchObject({ attention: "decoder.4", head: 3, query: 3 });
  });

  it("begins again with another recording, unless it names an attention", () => {
    const selection = new Selection();
    selection.choose({ recording: "translator" });
    selection.settle(translator);
    selection.choose({ pinned: [1], recording: "speech" });
    selection.settle(speech);
    expect(selection.choice.value).toMatchObject({ attention: "self.1", head: 1, query: 20, pinned: [] });
    selection.choose({ recording: "translator", attention: "encoder.2", head: 2, query: 1 });
    selection.settle(translator);
    expect(selection.choice.value).toMatchObject({ attention: "encoder.2", head: 2, query: 1 });
  });
});
