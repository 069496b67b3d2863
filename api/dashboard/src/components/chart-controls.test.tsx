import { fireEvent, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
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
