import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { SpecDiff } from "../../components/spec-diff";
import { expectAccessible } from "../../testing/accessible";
import { given, open } from "../../testing/control-plane";
import { jobWire } from "../../testing/jobs";
import { JobPicker } from "./job-picker";

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

test("specs that are the same are said to be; where they differ, field by field", async () => {
  open(<SpecDiff names={["a", "b"]} differences={[]} />);
  expect(screen.getByText("The specs are the same.")).toBeTruthy();
  const { container } = open(<SpecDiff names={["a", "b"]} differences={[{ field: "train.steps", values: ["10", null] }]} />);
  expect(screen.getByRole("row", { name: "train.steps 10 –" })).toBeTruthy();
  await expectAccessible(container);
});
