import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { expect, test } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { given, open } from "../../testing/control-plane";
import { job } from "../../testing/jobs";
import { JobSpec } from "./job-spec";

const TEXT = "name: a # mine\n";
const JOB = job({ spec: { name: "a", train: { steps: 3 } } });

const kept = (text: string | null, layout_changed = false) => ({
  [`GET /v1/jobs/${JOB.id}/submitted-spec`]: () => Response.json({ job: JOB.id, format: text === null ? null : "yaml", text, resume: null, layout_changed }),
});

test("the text that was submitted is shown first, and the resolved spec on request", async () => {
  given(kept(TEXT, true));
  const { container } = open(<JobSpec job={JOB} />);
  expect((await screen.findByRole("tabpanel", { name: "Submitted" })).textContent).toBe(TEXT);
  expect(screen.getByText(/The layout was changed since/)).toBeTruthy();
  await expectAccessible(container);
  await userEvent.click(screen.getByRole("tab", { name: "Submitted" }));
  await userEvent.keyboard("{ArrowRight}");
  expect(screen.getByRole("tabpanel", { name: "YAML" }).textContent).toContain("steps: 3");
  await userEvent.keyboard("{ArrowLeft}{ArrowLeft}");
  expect(document.activeElement?.textContent).toBe("JSON");
});

test("a layout that is changed while the tab is open is said", async () => {
  let changed = false;
  given({ [`GET /v1/jobs/${JOB.id}/submitted-spec`]: () => Response.json({ job: JOB.id, format: "yaml", text: TEXT, resume: null, layout_changed: changed }) });
  function Page() {
    const [layout, setLayout] = useState("data 2");
    return <><button onClick={() => { changed = true; setLayout("data 4"); }}>Change</button><JobSpec job={{ ...JOB, layout }} /></>;
  }
  open(<Page />);
  await userEvent.click(await screen.findByRole("tab", { name: "Submitted" }));
  expect(screen.queryByText(/The layout was changed since/)).toBe(null);
  await userEvent.click(screen.getByRole("button", { name: "Change" }));
  expect(await screen.findByText(/The layout was changed since/)).toBeTruthy();
});

test("without a text there is the resolved spec alone, and so there is when it cannot be read", async () => {
  given(kept(null));
  const { unmount } = open(<JobSpec job={JOB} />);
  expect(await screen.findByRole("tabpanel", { name: "YAML" })).toBeTruthy();
  expect(screen.queryByRole("tab", { name: "Submitted" })).toBe(null);
  unmount();
  given({});
  open(<JobSpec job={JOB} />);
  expect(await screen.findByRole("alert")).toBeTruthy();
  expect(screen.getByRole("tabpanel", { name: "YAML" })).toBeTruthy();
});
