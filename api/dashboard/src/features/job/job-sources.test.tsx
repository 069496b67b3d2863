import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { makeClient } from "../../api/query-client";
import { expectAccessible } from "../../testing/accessible";
import { given, open } from "../../testing/control-plane";
import { jobWire } from "../../testing/jobs";
import { JobSources } from "./job-sources";

test("each source is named with what it had", async () => {
  const files = [
    { target: "model", source: "hf://org/name", revision: "c0ffee", digest: "d1", files: 2, bytes: 2048 },
    { target: "notes", source: "/mnt/notes", revision: null, digest: null, files: null, bytes: null },
  ];
  given({ "GET /v1/jobs/job-1": () => Response.json(jobWire({ files })) });
  const { container } = open(<JobSources id="job-1" state="running" />);
  expect((await screen.findByText("model")).nextElementSibling?.textContent).toBe("hf://org/name 2 files, 2.0 KiB, commit c0ffee, digest d1");
  expect(screen.getByText("notes").nextElementSibling?.textContent).toBe("/mnt/notes a path that all nodes see");
  await expectAccessible(container);
});

test("what the job reads while the page is open appears, and an error is shown", async () => {
  let answer = () => Response.json(jobWire({ files: [] }));
  given({ "GET /v1/jobs/job-1": () => answer() });
  const client = makeClient();
  const page = (state: string) => <QueryClientProvider client={client}><JobSources id="job-1" state={state} /></QueryClientProvider>;
  const { rerender } = render(page("starting"));
  const source = { target: "notes", source: "/mnt/notes", revision: null, digest: null, files: null, bytes: null };
  answer = () => Response.json(jobWire({ files: [source] }));
  rerender(page("running"));
  expect(await screen.findByText("notes")).toBeTruthy();
  answer = () => Response.json({ title: "No such job", code: "job_not_found" }, { status: 404 });
  rerender(page("failed"));
  expect(await screen.findByText(/No such job/)).toBeTruthy();
});
