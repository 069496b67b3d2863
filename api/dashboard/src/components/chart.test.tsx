import { render } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import type { Line } from "./chart";

/** A browser's canvas as far as uPlot needs one: it counts the circles that are drawn. */
async function circlesOf(lines: readonly Line[]): Promise<number> {
  let circles = 0;
  const nothing = () => ({ width: 0 });
  class Path { arc = () => { circles += 1; }; moveTo = nothing; lineTo = nothing; rect = nothing; }
  const context = new Proxy({}, { get: () => nothing, set: () => true });
  vi.stubGlobal("Path2D", Path);
  vi.stubGlobal("matchMedia", () => new EventTarget());
  vi.stubGlobal("ResizeObserver", class { observe = nothing; disconnect = nothing; });
  vi.spyOn(HTMLCanvasElement.prototype, "getContext").mockReturnValue(context as CanvasRenderingContext2D);
  const { Chart } = await import("./chart"); // uPlot asks for the screen's resolution as it is loaded
  render(<Chart title="Loss" summary="" lines={lines} format={String} group="test" />);
  await Promise.resolve(); // uPlot draws in a microtask
  return circles;
}

const line = (...values: (number | null)[]): Line => ({ label: "loss", colour: "blue", points: values.map((y, x) => ({ x, y })) });

test.each([
  ["one value alone", [line(5)], 1],
  ["a value between two gaps", [line(5, 4, null, 3, null, 2, 1)], 1],
  ["values that a line joins", [line(5, 4, 3)], 0],
])("%s", async (_, lines, circles) => { expect(await circlesOf(lines)).toBe(circles); });
