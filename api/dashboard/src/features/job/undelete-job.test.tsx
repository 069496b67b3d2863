import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { given, open } from "../../testing/control-plane";
import { jobWire } from "../../testing/jobs";
import { JobPage } from "../../routes/job";

const gone = () => Response.json({ title: "The job was deleted", code: "job_deleted", detail: "job-1 was deleted by ada." }, { status: 410 });

test("the page of a deleted job offers to restore it, and shows it then", async () => {
  let restored = false;
  const sent = given({
    "GET /v1/jobs/job-1": () => (restored ? Response.json(jobWire({ state: "failed" })) : gone()),
    "GET /v1/jobs": () => Response.json({ items: [], next: null }),
    "POST /v1/jobs/job-1/undelete": () => { restored = true; return Response.json(jobWire({ state: "failed" })); },
  });
  open(<JobPage id="job-1" tab="spec" />);
  await userEvent.click(await screen.findByRole("button", { name: "Undo" }));
  await waitFor(() => { expect(screen.getByRole("heading", { name: "llama-nano" })).toBeTruthy(); });
  expect(screen.queryByRole("button", { name: "Undo" })).toBeNull();
  expect(sent.filter(({ method }) => method === "POST")).toHaveLength(1);
});
