import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { given, open } from "../../testing/control-plane";
import { incident } from "../../testing/history";
import { job } from "../../testing/jobs";
import { JobIncidents } from "./job-incidents";

test("incidents come newest first, earlier ones on request, beside the budgets", async () => {
  const requests = given({
    "GET /v1/jobs/job-1/incidents": ({ url }) =>
      url.searchParams.get("before") === "7"
        ? Response.json({ items: [incident({ position: 3, summary: "It began." })], next: null })
        : Response.json({ items: [incident({ summary: "It went on." })], next: 7 }),
  });
  const { container } = open(<JobIncidents job={job({ budgets: { repairs: { used: 2, limit: 20 }, restarts: { used: 0, limit: 3 }, retries: { used: 0, limit: 0 } } })} />);
  await screen.findByText("It went on.");
  expect(requests[0]?.url.searchParams.get("newest")).toBe("true");
  expect([...screen.getByRole("list", { name: "Budgets" }).children].map((item) => item.textContent)).toEqual(["Repairs2 of 20", "Restarts0 of 3"]);
  await userEvent.click(screen.getByRole("button", { name: "Earlier incidents" }));
  await screen.findByText("It began.");
  expect(screen.getAllByRole("article").map((one) => one.querySelector("p")?.textContent)).toEqual(["It went on.", "It began."]);
  expect(screen.queryByRole("button", { name: "Earlier incidents" })).toBeNull();
  await expectAccessible(container);
});

test("a quiet life is said", async () => {
  given({ "GET /v1/jobs/job-1/incidents": () => Response.json({ items: [], next: null }) });
  const first = open(<JobIncidents job={job()} />);
  expect(await screen.findByText("No incidents.")).toBeTruthy();
  first.unmount();
  open(<JobIncidents job={job({ state: "succeeded" })} />);
  expect(await screen.findByText("No incidents are stored.")).toBeTruthy(); // retention may have removed them
});
