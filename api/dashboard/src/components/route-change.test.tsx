import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { Link, Route, Switch } from "wouter";
import { useTitle } from "../hooks/use-title";
import { TopBar } from "../routes/top-bar";
import { expectAccessible } from "../testing/accessible";
import { given, open } from "../testing/control-plane";
import { RouteChange } from "./route-change";

function Page({ name }: { name: string }) {
  useTitle(name);
  return <main><h1>{name}</h1><Link href={`${location.pathname}?filter=1`}>Filter</Link></main>;
}

function show(address: string) {
  given({ "GET /v1/nodes": () => Response.json({ items: [] }) });
  return open(
    <>
      <TopBar />
      <RouteChange>
        <Switch>
          <Route path="/"><Page name="Jobs" /></Route>
          <Route path="/jobs/:id"><Page name="One job" /></Route>
          <Route path="/cluster"><Page name="Cluster" /></Route>
        </Switch>
      </RouteChange>
    </>,
    address,
  );
}

const content = () => document.getElementById("content");

test("a new page has the focus, and is said by its title", async () => {
  const { container } = show("/");
  expect(document.activeElement).toBe(document.body);
  await userEvent.click(screen.getByRole("link", { name: "Cluster" }));
  expect(screen.getByRole("heading", { name: "Cluster" })).toBeTruthy();
  expect(document.activeElement).toBe(content());
  expect(screen.getByRole("status").textContent).toBe("Cluster · Shardyard");
  expect(screen.getByRole("link", { name: "Cluster" }).getAttribute("aria-current")).toBe("page");
  await expectAccessible(container);
});

test("the bar knows where a job's page belongs", () => {
  show("/jobs/job-1");
  expect(screen.getByRole("link", { name: "Jobs" }).getAttribute("aria-current")).toBe("true");
  expect(screen.getByRole("link", { name: "Cluster" }).getAttribute("aria-current")).toBeNull();
});

test("another filter of the same page moves neither focus nor page", async () => {
  const scroll = vi.spyOn(window, "scrollTo");
  show("/");
  const filter = screen.getByRole("link", { name: "Filter" });
  await userEvent.click(filter);
  expect(location.search).toBe("?filter=1");
  expect(document.activeElement).toBe(filter);
  expect(scroll).not.toHaveBeenCalled();
});

test("a page after a step back to another setting begins at its top", async () => {
  const scroll = vi.spyOn(window, "scrollTo").mockClear();
  show("/");
  await userEvent.click(screen.getByRole("link", { name: "Filter" }));
  history.back();
  await expect.poll(() => location.search).toBe("");
  await userEvent.click(screen.getByRole("link", { name: "Cluster" }));
  expect(scroll).toHaveBeenCalledWith(0, 0);
});
