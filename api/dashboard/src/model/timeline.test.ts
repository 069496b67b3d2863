import { expect, test } from "vitest";
import { timeline } from "../testing/history";
import { draw } from "./timeline";

test("spans fill the line, and what lasts ends now", () => {
  const drawn = draw(timeline(), 1100);
  expect(drawn?.spans.map(({ left, width }) => [left, width])).toEqual([[0, 0.1], [0.1, 0.5], [0.6, 0.4]]);
  expect(drawn?.marks.map(({ at }) => at)).toEqual([0.35]);
  expect(drawn?.attempts).toEqual([{ number: 2, at: 0.6 }]);
});

test("nothing is drawn of a job without a state, and a single moment has a width", () => {
  expect(draw({ spans: [], marks: [], complete: true }, 5)).toBeNull();
  const drawn = draw(timeline({ spans: [{ state: "queued", attempt: 0, generation: 0, begun: 5, ended: null, reason: null }], marks: [] }), 5);
  expect(drawn?.spans[0]?.width).toBe(1);
});
