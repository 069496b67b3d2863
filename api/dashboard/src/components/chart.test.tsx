import { cleanup, render } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import type { ChartProps, Line } from "./chart";
import { alongOf } from "./chart-axis";

afterEach(cleanup);

/** A browser's canvas as far as uPlot needs one: what is drawn on it, as the number of circles and the texts. */
async function drawn(chart: Pick<ChartProps, "lines"> & Partial<ChartProps>): Promise<{ circles: number; texts: string[] }> {
  const found = { circles: 0, texts: [] as string[] };
  const nothing = () => ({ width: 0 });
  const fillText = (text: string) => { found.texts.push(text); };
  class Path { arc = () => { found.circles += 1; }; moveTo = nothing; lineTo = nothing; rect = nothing; }
  const context = new Proxy({}, { get: (_, name) => (name === "fillText" ? fillText : nothing), set: () => true });
  vi.stubGlobal("Path2D", Path);
  vi.stubGlobal("matchMedia", () => new EventTarget());
  vi.stubGlobal("ResizeObserver", class { observe = nothing; disconnect = nothing; });
  vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockReturnValue(600);
  vi.spyOn(HTMLCanvasElement.prototype, "getContext").mockReturnValue(context as CanvasRenderingContext2D);
  const { Chart } = await import("./chart"); // uPlot asks for the screen's resolution as it is loaded
  render(<Chart title="Loss" summary="" format={String} group="test" {...chart} />);
  await Promise.resolve(); // uPlot draws in a microtask
  return found;
}

const line = (...values: (number | null)[]): Line => ({ label: "loss", colour: "blue", points: values.map((y, x) => ({ x, y })) });

test.each([
  ["one value alone", [line(5)], 1],
  ["a value between two gaps", [line(5, 4, null, 3, null, 2, 1)], 1],
  ["values that a line joins", [line(5, 4, 3)], 0],
])("%s", async (_, lines, circles) => { expect((await drawn({ lines })).circles).toBe(circles); });

test.each([
  ["tokens", 1_300_000_000, 1_400_000_000, "1.32B", "1,400,000,000"],
  ["tokens", 100_000_000, 101_000_000, "100.2M", "101,000,000"],
  ["time", 187_200, 190_200, "2 d 4 h 10 min", "2 d 4 h 50 min 00 s"],
] as const)("along %s from %d to %d no two ticks have one text", async (by, from, to, tick, place) => {
  const places = { ofStep: (step: number) => step, toStep: (x: number) => x };
  const points = [0, to / 2, from, to].map((x) => ({ x, y: 0.5 }));
  const { texts } = await drawn({ lines: [{ label: "loss", colour: "blue", points }], ...alongOf("test", by, [from, to], places, undefined) });
  const ticks = texts.filter((text) => /[a-zB]$/i.test(text));
  expect(ticks).toContain(tick);
  expect(new Set(ticks).size).toBe(ticks.length);
  expect(document.querySelector(".u-legend .u-value")?.textContent).toBe(place);
});
