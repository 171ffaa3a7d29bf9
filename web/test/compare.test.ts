import { describe, expect, it } from "vitest";
import { difference, largest } from "../src/compare";
import { changeOf, entropyCurves, mostChanged, placeOf, ticksOf } from "../src/entropy-curves";
import { otherSide, readPartner, writePartner } from "../src/comparison-side";
import { paint } from "../src/picture";
import { Recording } from "../src/recording";
import { nothing } from "../src/selection";
import { FakeSource, fakeFiles } from "./fake";

const plain = { merge: false, hide: false, renormalise: false };
const open = (id: string) => Recording.open(new FakeSource(fakeFiles()), id);

describe("the other side", () => {
  it("is read as it was written, heads from 1", () => {
    const partner = { recording: "abc", attention: "cross.2", head: 2, step: 0, word: 5 };
    expect(writePartner(partner)).toBe("abc*cross.2*3*0*5");
    expect(readPartner("abc*cross.2*3*0*5")).toEqual(partner);
    expect(writePartner(readPartner("*cross.2"))).toBe("*cross.2");
    expect(writePartner(readPartner(""))).toBe("");
    expect(readPartner("a*b*0*x*-1")).toEqual({ recording: "a", attention: "b", head: null, step: null, word: null });
  });

  it("is by default the next head, the first training step, or the same head of another recording", async () => {
    const { manifest } = await open("speech");
    const { manifest: translator } = await open("translator");
    const choice = { ...nothing, attention: "self.2", head: 5, step: 3 };
    expect(otherSide(readPartner(""), choice, manifest, true)).toEqual({ attention: "self.2", head: 5, step: 0 });
    expect(otherSide(readPartner(""), { ...choice, step: 0 }, manifest, true)).toEqual({ attention: "self.2", head: 5, step: 3 });
    expect(otherSide(readPartner("**2"), choice, manifest, true)).toEqual({ attention: "self.2", head: 1, step: 0 });
    const cross = { ...nothing, attention: "cross.2", head: 3 };
    expect(otherSide(readPartner(""), cross, translator, true)).toEqual({ attention: "cross.2", head: 0, step: 0 });
    expect(otherSide(readPartner("x"), cross, translator, false)).toEqual({ attention: "cross.2", head: 3, step: 0 });
    expect(otherSide(readPartner("*cross.1"), cross, translator, true)).toEqual({ attention: "cross.1", head: 3, step: 0 });
    expect(otherSide(readPartner("x*nowhere*99*99"), cross, translator, false)).toEqual({ attention: "cross.2", head: 3, step: 0 });
  });
});

describe("the difference", () => {
  it("is here minus there, cell by cell", async () => {
    const recording = await open("translator");
    const attention = recording.attention("cross.2")!;
    const [here, there] = await Promise.all([0, 1].map((head) => paint(recording, attention, head, 0, plain)));
    const found = difference(here, there)!;
    found.values.forEach((value, at) => expect(value).toBeCloseTo(here.values[at] - there.values[at], 6));
    expect(found.limit).toBe(Math.max(...found.values.map(Math.abs)));
    expect(found.same).toBe(true);
    expect(difference(here, here)!.limit).toBe(0);
    const other = await paint(recording, recording.attention("encoder.1")!, 0, 0, plain);
    expect(difference(here, other)!.same).toBe(false);
  });

  it("is hatched where both are masked", async () => {
    const recording = await open("translator");
    const [causal, free] = await Promise.all(["decoder.1", "encoder.1"].map((id) => paint(recording, recording.attention(id)!, 0, 0, plain)));
    expect(difference(causal, causal)!.masked).toEqual(causal.masked);
    expect(difference(causal, free)!.masked).toBeNull();
  });

  it("does not exist for different sizes", async () => {
    const [one, other] = await Promise.all(["translator", "bank"].map(open));
    const [here, there] = await Promise.all([one, other].map((each) => paint(each, each.attention("cross.1")!, 0, 0, plain)));
    expect(difference(here, there)).toBeNull();
  });

  it("is largest where it is farthest from 0", () => {
    const values = Float32Array.of(0.1, -0.9, 0, 0.5, -0.2);
    expect(largest(values, 3)).toEqual([1, 3, 4]);
    expect(largest(values, 9)).toEqual([1, 3, 4, 0]);
    expect(largest(values, 1, 2, 5)).toEqual([3]);
    expect(largest(new Float32Array(3), 2)).toEqual([]);
  });
});

describe("the entropy curves", () => {
  it("has a line for every head", async () => {
    const { manifest } = await open("speech");
    const curves = entropyCurves(manifest);
    expect(curves).toHaveLength(18);
    expect(curves[7].entropy).toEqual(manifest.attentions[1].statistics.entropy.map((heads) => heads[1]));
    const most = mostChanged(curves)!;
    for (const curve of curves) expect(Math.abs(changeOf(curve)!)).toBeLessThanOrEqual(Math.abs(changeOf(most)!));
    expect(changeOf({ ...most, entropy: [null, 1] })).toBeNull();
    expect(mostChanged([])).toBeNull();
  });

  it("are on a logarithmic axis that begins at 0", () => {
    expect([placeOf(0, 2000), placeOf(2000, 2000), placeOf(0, 0)]).toEqual([0, 1, 0]);
    expect(placeOf(99, 9999)).toBeCloseTo(0.5, 12);
    expect(ticksOf(2809, 0.1)).toEqual([0, 10, 100, 1000, 2809]);
    expect(ticksOf(2000, 0.01)).toEqual([0, 1, 10, 100, 1000, 2000]);
  });
});
