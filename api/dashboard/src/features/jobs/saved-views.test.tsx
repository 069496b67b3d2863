import { renderHook, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, test } from "vitest";
import { AddressRouter } from "../../components/address-router";
import { useColumns } from "../../hooks/use-columns";
import { expectAccessible } from "../../testing/accessible";
import { open } from "../../testing/control-plane";
import { SavedViews } from "./saved-views";

beforeEach(() => { localStorage.clear(); });

test("a view is saved, opened, replaced and removed", async () => {
  const { container, unmount } = open(<SavedViews />, "/?state=failed&sort=name");
  await userEvent.click(screen.getByRole("button", { name: "Views…" }));
  await userEvent.type(screen.getByLabelText("Name of the view"), " broken {Enter}");
  await expectAccessible(container);
  unmount();
  open(<SavedViews />, "/?text=llama");
  await userEvent.click(screen.getByRole("button", { name: "Views…" }));
  await userEvent.click(screen.getByRole("link", { name: "broken" }));
  expect([location.search, screen.queryByRole("dialog")]).toEqual(["?state=failed&sort=name&columns=", null]);
  history.replaceState(null, "", "/?text=other");
  await userEvent.click(screen.getByRole("button", { name: "Views…" }));
  await userEvent.type(screen.getByLabelText("Name of the view"), "broken{Enter}");
  expect(screen.getAllByRole("link").map((link) => link.getAttribute("href"))).toEqual(["/?text=other&columns="]);
  await userEvent.click(screen.getByRole("button", { name: "Remove the view broken" }));
  expect(screen.getByText("No views are saved in this browser.")).toBeTruthy();
});

test("a view keeps the columns that are shown, also those that this browser had last", async () => {
  localStorage.setItem("shardyard.job-columns", "label.team");
  open(<SavedViews />, "/?state=failed");
  await userEvent.click(screen.getByRole("button", { name: "Views…" }));
  await userEvent.type(screen.getByLabelText("Name of the view"), "mine{Enter}");
  expect(screen.getByRole("link", { name: "mine" }).getAttribute("href")).toBe("/?state=failed&columns=label.team");
});

test("a view without columns has none, also where this browser had some last", async () => {
  open(<SavedViews />, "/?state=failed");
  await userEvent.click(screen.getByRole("button", { name: "Views…" }));
  await userEvent.type(screen.getByLabelText("Name of the view"), "bare{Enter}");
  localStorage.setItem("shardyard.job-columns", "label.team");
  await userEvent.click(screen.getByRole("link", { name: "bare" }));
  expect(renderHook(useColumns, { wrapper: AddressRouter }).result.current.columns).toEqual([]);
});

test.each(["{", "{}", '[{"name": 1}, null, 3]'])("what is stored as %s is no view", async (text) => {
  localStorage.setItem("shardyard.views", text);
  open(<SavedViews />, "/");
  await userEvent.click(screen.getByRole("button", { name: "Views…" }));
  expect(screen.queryAllByRole("link")).toEqual([]);
});
