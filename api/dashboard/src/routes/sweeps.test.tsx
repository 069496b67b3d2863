import { fireEvent, screen, within } from "@testing-library/react";
import { expect, test } from "vitest";
import { expectAccessible } from "../testing/accessible";
import { given, open } from "../testing/control-plane";
import { sweepWire } from "../testing/sweeps";
import { SweepsPage } from "./sweeps";

test("sweeps are listed with their best trial, and older ones on demand", async () => {
  given({
    "GET /v1/sweeps": ({ url }) =>
      url.searchParams.get("cursor") === null
        ? Response.json({ items: [sweepWire()], next: "sweep-1" })
        : Response.json({ items: [sweepWire({ id: "sweep-0", name: "first", state: "failed", best: null })], next: null }),
  });
  const { container } = open(<SweepsPage />, "/sweeps");
  const row = within((await screen.findByRole("link", { name: "tune" })).closest("tr") ?? container);
  expect(row.getByText("running")).toBeTruthy();
  expect(row.getByText("2")).toBeTruthy();
  expect(row.getByText("lr=0.001")).toBeTruthy();
  expect(row.getByRole("progressbar", { name: "Trials of tune that have ended" }).getAttribute("value")).toBe("2");
  fireEvent.click(screen.getByRole("button", { name: "Older" }));
  expect((await screen.findByRole("link", { name: "first" })).getAttribute("href")).toBe("/sweeps/sweep-0");
  expect(screen.queryByRole("button", { name: "Older" })).toBeNull();
  await expectAccessible(container);
});

test("without sweeps the page shows how to submit one", async () => {
  given({ "GET /v1/sweeps": () => Response.json({ items: [], next: null }) });
  const { container } = open(<SweepsPage />, "/sweeps");
  expect(await screen.findByText("No sweeps yet")).toBeTruthy();
  expect(screen.getByText("shardyard submit examples/sweep.yaml")).toBeTruthy();
  await expectAccessible(container);
});
