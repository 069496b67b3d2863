import { fireEvent, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { type SentRequest, given, open } from "../../testing/control-plane";
import { job } from "../../testing/jobs";
import { spansWire, summaryWire, traceWire } from "../../testing/traces";
import { JobTraces } from "./job-traces";

const TRACES = "/v1/jobs/job-1/traces";

function show(answers: Record<string, (request: SentRequest) => Response> = {}, state = "running") {
  const requests = given({
    [`GET ${TRACES}`]: () => Response.json({ items: [traceWire()], next: null }),
    [`GET ${TRACES}/trace-1`]: () => Response.json(summaryWire()),
    [`GET ${TRACES}/trace-1/spans`]: () => Response.json(spansWire()),
    ...answers,
  });
  return { requests, ...open(<JobTraces job={job({ state })} />) };
}

const timeline = () => screen.findByRole("application", { name: "Timeline of step 5: 2 ranks, 20.0 ms" });
const described = () => document.querySelector(".lanes-chosen")?.textContent;

test("a step is drawn by rank, beside the ideal schedule, with the bubble and the slowest rank in words", async () => {
  const { container } = show();
  const lanes = await timeline();
  expect([...lanes.querySelectorAll(".lane-name")].map((name) => name.textContent)).toEqual(["rank 0", "rank 1", "ideal 0", "ideal 1"]);
  expect(screen.getByText("bubble 23% measured, 20% ideal")).toBeTruthy();
  expect(screen.getByText(/Rank 1 had the most compute time: 2.0 ms/)).toBeTruthy();
  expect(within(screen.getByRole("list", { name: "Legend" })).getAllByRole("listitem").map((item) => item.textContent)).toEqual(["Forward (F)", "Backward (B)", "Other compute", "Receive", "Collective"]);
  expect(screen.getByRole("link", { name: "Download for Perfetto" }).getAttribute("href")).toBe(`${TRACES}/trace-1/perfetto`);
  await userEvent.click(screen.getByText(/Times by rank/));
  expect(screen.getByRole("row", { name: /^1 \(slowest\) 20.0 18.0 2.0/ })).toBeTruthy();
  await expectAccessible(container);
});

test("keys go from span to span and from rank to rank, and say each", async () => {
  show();
  (await timeline()).focus();
  await userEvent.keyboard("{ArrowRight}{ArrowRight}{ArrowRight}");
  expect(described()).toBe("Rank 0 · forward 0 · Forward · micro-batch 0 · stage 0 · 6.0 ms, 4.0 ms after the start of the step");
  await userEvent.keyboard("{ArrowDown}");
  expect(described()).toContain("Rank 1 · forward 0");
  await userEvent.keyboard("{ArrowDown}");
  expect(described()).toContain("Rank 0 · forward"); // of the ideal schedule
  expect(described()).toContain("4.0 ms after the start of the step");
  await userEvent.keyboard("{Escape}");
  expect(described()).toBe("");
});

test("keys and the wheel zoom, 0 shows the whole step", async () => {
  show();
  const lanes = await timeline();
  const scale = () => [...document.querySelectorAll(".lanes-scale span")].map((one) => one.textContent);
  lanes.focus();
  await userEvent.keyboard("+");
  expect(scale()).toEqual(["3.0 ms", "10.0 ms", "17.0 ms"]);
  fireEvent.wheel(lanes, { deltaY: -400, clientX: 496 });
  expect(scale()[1]).toBe("10.0 ms");
  expect(scale()[0]).not.toBe("3.0 ms");
  await userEvent.keyboard("0");
  expect(scale()).toEqual(["0 µs", "10.0 ms", "20.0 ms"]);
});

test("the span below the pointer is described", async () => {
  show();
  fireEvent.pointerMove(await timeline(), { clientX: 92 + 808 * 0.75, clientY: 22 + 8 });
  expect(described()).toContain("Rank 0 · backward 0");
});

test("what lies between the spans is the rank's other work, where none is missing", async () => {
  const ranks = spansWire().ranks.slice(0, 1).map((first) => ({ ...first, began_us: 0, spans: first.spans.slice(2, 3) }));
  const { unmount } = show({ [`GET ${TRACES}/trace-1/spans`]: () => Response.json(spansWire({ ranks })) });
  fireEvent.pointerMove(await screen.findByRole("application"), { clientX: 92 + 808 * 0.75, clientY: 22 + 8 });
  expect(described()).toBe("Rank 0 · between spans · Other compute · 10.0 ms, 10.0 ms after the start of the step");
  unmount();
  show({ [`GET ${TRACES}/trace-1/spans`]: () => Response.json(spansWire({ ranks, dropped: 1 })) });
  fireEvent.pointerMove(await screen.findByRole("application"), { clientX: 92 + 808 * 0.75, clientY: 22 + 8 });
  expect(described()).toBe("");
});

test("where spans were left out, a zoom fetches them", async () => {
  const { requests } = show({ [`GET ${TRACES}/trace-1/spans`]: ({ url }) => Response.json(spansWire({ dropped: url.searchParams.has("to_us") ? 0 : 1234 })) });
  expect(await screen.findByText(/The 1,234 shortest spans in view are not drawn/)).toBeTruthy();
  (await timeline()).focus();
  await userEvent.keyboard("+");
  await expect.poll(() => requests.at(-1)?.url.search).toBe("?step=5&from_us=3000&to_us=17001");
  await expect.poll(() => screen.queryByText(/are not drawn/)).toBeNull();
});

test("spans that were not recorded are counted, and no zoom is said to show them", async () => {
  const { requests } = show({ [`GET ${TRACES}/trace-1/spans`]: () => Response.json(spansWire({ unrecorded: 7000 })) });
  expect(await screen.findByText("The 7,000 shortest spans of this step were not recorded.")).toBeTruthy();
  expect(screen.queryByText(/Zoom in/)).toBeNull();
  (await timeline()).focus();
  await userEvent.keyboard("+");
  expect(requests.some(({ url }) => url.searchParams.has("to_us"))).toBe(false);
});

test("a trace is started, and its progress is shown", async () => {
  let asked = false;
  const { requests } = show({
    [`GET ${TRACES}`]: () => Response.json({ items: asked ? [traceWire({ state: "open", parts: 2 })] : [], next: null }),
    "POST /v1/jobs/job-1/trace": () => {
      asked = true;
      return Response.json(traceWire({ state: "open", parts: 0 }), { status: 202 });
    },
  });
  await userEvent.click(screen.getByRole("button", { name: "Trace 3 steps" }));
  const sent = requests.find(({ method }) => method === "POST");
  expect(sent?.url.search).toBe("?steps=3");
  expect(sent?.headers.get("Idempotency-Key")).toMatch(/^page-trace-[0-9a-f]{32}$/);
  expect((await screen.findByRole("progressbar", { name: "Parts received" })).getAttribute("value")).toBe("2");
  expect(screen.getByRole("button", { name: "Trace 3 steps" })).toHaveProperty("disabled", true);
});

test("a refusal is shown, and a failed trace has its reason", async () => {
  show({
    [`GET ${TRACES}`]: () => Response.json({ items: [traceWire({ state: "failed", parts: 0, message: "the attempt ended" })], next: null }),
    "POST /v1/jobs/job-1/trace": () => Response.json({ title: "A trace is being recorded", code: "trace_open" }, { status: 409 }),
  });
  expect(await screen.findByText("The last trace failed: the attempt ended")).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "Trace 3 steps" }));
  expect((await screen.findByRole("alert")).textContent).toContain("A trace is being recorded");
});

test("a job that does not run cannot be traced", () => {
  show({}, "queued");
  expect(screen.getByRole("button", { name: "Trace 3 steps" })).toHaveProperty("disabled", true);
});
