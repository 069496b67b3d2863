import { fireEvent, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import type { ChartView } from "../model/chart-view";
import { expectAccessible } from "../testing/accessible";
import { ChartControls } from "./chart-controls";

test("search, smoothing, log axis and range are set by keys too", async () => {
  const onChange = vi.fn();
  const view = { find: "", smooth: 0, log: false, by: "step", zoom: null } as const;
  const { container, rerender } = render(<ChartControls view={view} onChange={onChange} lastStep={900} count={6} axes />);
  await expectAccessible(container);
  fireEvent.change(screen.getByRole("slider", { name: "Smoothing 0.00" }), { target: { value: "0.6" } });
  expect(onChange).toHaveBeenLastCalledWith({ smooth: 0.6 });
  await userEvent.type(screen.getByRole("searchbox", { name: "Find metrics" }), "l");
  expect(onChange).toHaveBeenLastCalledWith({ find: "l" });
  expect(screen.getByText("6 metrics")).toBeTruthy();
  await userEvent.click(screen.getByLabelText("Log axis"));
  expect(onChange).toHaveBeenLastCalledWith({ log: true });
  await userEvent.selectOptions(screen.getByLabelText("Along"), "tokens");
  expect(onChange).toHaveBeenLastCalledWith({ by: "tokens" });
  expect(screen.getByRole("button", { name: "All steps" })).toHaveProperty("disabled", true);
  await userEvent.type(screen.getByLabelText("Steps"), "100{Enter}");
  expect(onChange).toHaveBeenLastCalledWith({ zoom: [100, 900] });
  rerender(<ChartControls view={{ ...view, zoom: [100, 200] }} onChange={onChange} lastStep={900} count={6} axes />);
  expect(screen.getByLabelText("to")).toHaveProperty("value", "200");
  await userEvent.click(screen.getByRole("button", { name: "All steps" }));
  expect(onChange).toHaveBeenLastCalledWith({ zoom: null });
});

test.each<[string, string, ChartView["zoom"]]>([
  ["10,000", "20 000", [10_000, 20_000]],
  ["1_000", "", [1000, 90_000]],
  ["10k", "", null],
  ["300", "200", null],
])("steps from “%s” to “%s” are %j", async (from, to, zoom) => {
  const onChange = vi.fn();
  const { container } = render(<ChartControls view={{ find: "", smooth: 0, log: false, by: "step", zoom: null }} onChange={onChange} lastStep={90_000} count={6} axes />);
  const [low, high] = [screen.getByLabelText("Steps"), screen.getByLabelText("to")];
  await userEvent.type(low, from);
  if (to !== "") await userEvent.type(high, to);
  await userEvent.click(screen.getByRole("button", { name: "Zoom" }));
  expect(onChange.mock.calls).toEqual(zoom ? [[{ zoom }]] : []);
  expect([low, high].map((field) => field.getAttribute("aria-invalid"))).toEqual(zoom ? ["false", "false"] : ["true", "true"]);
  expect(screen.queryAllByRole("alert")).toHaveLength(zoom ? 0 : 1);
  await expectAccessible(container);
  await userEvent.type(high, "1");
  expect(high.getAttribute("aria-invalid")).toBe("false");
});
