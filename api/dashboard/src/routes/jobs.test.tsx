import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, test, vi } from "vitest";
import type { JobWire } from "../services/jobs";
import { makeClient } from "../services/query-client";
import { jobWire } from "../testing/jobs";
import { JobsPage } from "./jobs";

const asked: URL[] = [];

/** The control plane answers with `answer`. */
function given(answer: (url: URL) => Response): void {
  vi.stubGlobal("fetch", (path: string) => {
    const url = new URL(path, "http://control.plane");
    asked.push(url);
    return Promise.resolve(answer(url));
  });
}

const page = (items: JobWire[], next: string | null = null) => Response.json({ items, next });

function open(address = "/"): void {
  history.replaceState(null, "", address);
  render(<QueryClientProvider client={makeClient()}><JobsPage /></QueryClientProvider>);
}

beforeEach(() => { asked.length = 0; });

test("no jobs: how to submit one", async () => {
  given(() => page([]));
  open();
  expect(await screen.findByText("shardyard submit examples/quickstart.yaml")).toBeTruthy();
});

test("the filter is read from the address and written to it", async () => {
  given(() => page([jobWire()]));
  open("/?state=running");
  await screen.findByRole("link", { name: "llama-nano" });
  expect(asked[0]?.searchParams.get("state")).toBe("running");
  await userEvent.type(screen.getByRole("searchbox"), "llama");
  expect(location.search).toBe("?state=running&text=llama");
  await expect.poll(() => asked.at(-1)?.searchParams.get("text")).toBe("llama");
  expect(asked.filter((url) => url.searchParams.get("text") === "lla")).toEqual([]);
});

test("a filter that nothing matches can be taken away", async () => {
  given((url) => page(url.searchParams.has("text") ? [] : [jobWire()]));
  open("/?text=nothing");
  await userEvent.click(await screen.findByRole("button", { name: "Show all jobs" }));
  expect(await screen.findByRole("link", { name: "llama-nano" })).toBeTruthy();
  expect(location.search).toBe("");
});

test("more jobs come by cursor", async () => {
  given((url) => (url.searchParams.get("cursor") === "c1" ? page([jobWire({ id: "job-2", name: "older" })]) : page([jobWire()], "c1")));
  open();
  await userEvent.click(await screen.findByRole("button", { name: "Load more" }));
  expect(await screen.findByRole("link", { name: "older" })).toBeTruthy();
  expect(screen.getByRole("link", { name: "llama-nano" })).toBeTruthy();
  expect(screen.queryByRole("button", { name: "Load more" })).toBeNull();
});

test("a refusal is shown as the control plane said it", async () => {
  given(() => Response.json({ title: "Invalid filter", code: "invalid_filter", detail: "No such state." }, { status: 422 }));
  open("/?state=napping");
  expect((await screen.findByRole("alert")).textContent).toContain("No such state.");
});
