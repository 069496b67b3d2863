import { fireEvent, screen, within } from "@testing-library/react";
import { expect, test } from "vitest";
import { expectAccessible } from "../testing/accessible";
import { given, open } from "../testing/control-plane";
import { modelWire } from "../testing/models";
import { ModelsPage } from "./models";

test("models are listed with their aliases, and more on demand", async () => {
  given({
    "GET /v1/models": ({ url }) =>
      url.searchParams.get("after") === null
        ? Response.json({ items: [modelWire()], next: "nano" })
        : Response.json({ items: [modelWire({ name: "other", aliases: [] })], next: null }),
  });
  const { container } = open(<ModelsPage />, "/models");
  const row = within((await screen.findByRole("link", { name: "nano" })).closest("tr") ?? container);
  expect(row.getByText("best → 1")).toBeTruthy();
  fireEvent.click(screen.getByRole("button", { name: "More" }));
  expect((await screen.findByRole("link", { name: "other" })).getAttribute("href")).toBe("/models/other");
  await expectAccessible(container);
});

test("without models the page shows how to create a version", async () => {
  given({ "GET /v1/models": () => Response.json({ items: [], next: null }) });
  open(<ModelsPage />, "/models");
  expect(await screen.findByText("shardyard models NAME --create JOB@STEP")).toBeTruthy();
});
