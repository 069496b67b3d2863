import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { expectAccessible } from "../testing/accessible";
import { job } from "../testing/jobs";
import { given, open } from "../testing/plane";
import { checkpoint } from "../testing/story";
import { JobCheckpoints } from "./job-checkpoints";

const now = new Date(1_795_000_060_000);

test("each checkpoint can be gone on from, or exported; earlier ones come when they are asked for", async () => {
  given({
    "GET /v1/jobs/job-1/checkpoints": ({ url }) =>
      url.searchParams.get("before") === "9" ? Response.json({ items: [checkpoint({ n: 4, step: 50 })], next: null }) : Response.json({ items: [checkpoint()], next: 9 }),
  });
  const { container } = open(<JobCheckpoints job={job({ state: "succeeded" })} now={now} />);
  const resume = await screen.findByRole("link", { name: "Resume from here… step 100" });
  expect(resume.getAttribute("href")).toBe("/new?from=job-1&checkpoint=%2Fdata%2Fcheckpoints%2Fjob-1%2Fstep-00000100");
  expect(screen.getByText("1 min ago")).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "Earlier checkpoints" }));
  await screen.findByRole("link", { name: "Resume from here… step 50" });
  await expectAccessible(container);
  await userEvent.click(screen.getByRole("button", { name: "Export… step 100" }));
  const dialog = screen.getByRole("dialog", { name: "Export step 100 of llama-nano" });
  expect(within(dialog).getByText("shardyard export /data/checkpoints/job-1/step-00000100 ./exported")).toBeTruthy();
  await expectAccessible(dialog);
  await userEvent.click(within(dialog).getByRole("button", { name: "Close" }));
  expect(screen.queryByRole("dialog")).toBeNull();
});

test("none yet is said", async () => {
  given({ "GET /v1/jobs/job-1/checkpoints": () => Response.json({ items: [], next: null }) });
  open(<JobCheckpoints job={job()} now={now} />);
  expect(await screen.findByText(/^None yet/)).toBeTruthy();
});
