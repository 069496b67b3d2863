import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { SpecDiff } from "../../components/spec-diff";
import { expectAccessible } from "../../testing/accessible";
import { given, open } from "../../testing/control-plane";
import { job, jobWire } from "../../testing/jobs";
import { JobPicker } from "./job-picker";
import { RunTable } from "./run-table";

test("jobs are offered by a part of their name, those that are there already left out", async () => {
  const requests = given({ "GET /v1/jobs": () => Response.json({ items: [jobWire(), jobWire({ id: "job-2", name: "other" })], next: null }) });
  const pick = vi.fn();
  const { container } = open(<JobPicker without={["job-1"]} onPick={pick} />);
  await userEvent.type(screen.getByRole("searchbox", { name: "Search for a job to add" }), "oth");
  await userEvent.click(await screen.findByRole("button", { name: /Add other/ }));
  expect(pick).toHaveBeenCalledWith("job-2");
  expect(screen.queryByRole("button", { name: /Add llama-nano/ })).toBeNull();
  await expect.poll(() => requests.at(-1)?.url.searchParams.get("text")).toBe("oth");
  await expectAccessible(container);
});

test("runs are shown with their numbers, and can be removed", async () => {
  const remove = vi.fn();
  const validations = [{ step: 100, seconds: 1, tokens: 1, loss: 2.25, tokensPerSecond: null }];
  const { container } = open(<RunTable runs={[{ job: job(), points: [], validations, colour: "blue" }]} onRemove={remove} />);
  const row = screen.getByRole("row", { name: /llama-nano/ });
  for (const text of ["150", "2.5000", "2.2500", "10.3k"]) expect(row.textContent).toContain(text);
  await expectAccessible(container);
  await userEvent.click(screen.getByRole("button", { name: "Remove llama-nano" }));
  expect(remove).toHaveBeenCalledWith("job-1");
});

test("specs that are the same are said to be; where they differ, field by field", async () => {
  open(<SpecDiff names={["a", "b"]} differences={[]} />);
  expect(screen.getByText("The specs are the same.")).toBeTruthy();
  const { container } = open(<SpecDiff names={["a", "b"]} differences={[{ field: "train.steps", values: ["10", null] }]} />);
  expect(screen.getByRole("row", { name: "train.steps 10 –" })).toBeTruthy();
  await expectAccessible(container);
});
