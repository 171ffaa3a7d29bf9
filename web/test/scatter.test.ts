// Where the words of a plane are written.
import { expect, test } from "vitest";
import { labels } from "../src/scatter";

test("a word is as wide as it is drawn, and does not cover a point", () => {
  const point = (text: string) => ({ x: 0, y: 0, text, second: false, marked: false });
  const places = [0, 60].map((x) => ({ x: 200 + x, y: 100 }));
  const drawn = (text: string) => 20 * text.length;
  const [wide, next] = labels([point("mmm"), point("m")], places, 400, drawn);
  expect(wide).toMatchObject({ left: 130, width: 62 }); // to the left, since there is no room up to the next point
  expect(next).toMatchObject({ left: 268 });
});
