import { screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { given, open } from "../../testing/control-plane";
import { job, jobWire } from "../../testing/jobs";
import { JobParent } from "./job-parent";

test("a job stands beside its parent where they differ", async () => {
  given({ "GET /v1/jobs/job-0": () => Response.json(jobWire({ id: "job-0", spec: { name: "llama-nano", train: { steps: 300 } } })) });
  const { container } = open(<JobParent job={job({ parent: "job-0" })} parent="job-0" />);
  expect((await screen.findByRole("link", { name: "llama-nano" })).getAttribute("href")).toBe("/jobs/job-0");
  expect([...container.querySelectorAll("tr")].map((row) => [...row.children].map((cell) => cell.textContent))).toEqual([
    ["Field", "llama-nano (parent)", "llama-nano"],
    ["train.steps", "300", "600"],
  ]);
  await expectAccessible(container);
});

test("a parent that is gone is said", async () => {
  given({});
  open(<JobParent job={job()} parent="job-0" />);
  expect(await screen.findByText(/no longer exists/)).toBeTruthy();
});

test("a parent that was deleted, or cannot be read now, is not said to be gone", async () => {
  given({ "GET /v1/jobs/job-0": () => Response.json({ title: "The job was deleted", code: "job_deleted" }, { status: 410 }) });
  const { unmount } = open(<JobParent job={job()} parent="job-0" />);
  expect((await screen.findByRole("link", { name: "job-0" })).parentElement?.textContent).toBe("Its parent job-0 was deleted.");
  unmount();
  given({ "GET /v1/jobs/job-0": () => Response.json({ title: "Not allowed", code: "forbidden" }, { status: 403 }) });
  open(<JobParent job={job()} parent="job-0" />);
  expect((await screen.findByRole("alert")).textContent).toContain("Not allowed");
});
