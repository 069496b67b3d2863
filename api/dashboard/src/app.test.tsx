import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { makeClient } from "./api/query-client";
import { App } from "./app";
import { given } from "./testing/control-plane";

test.each(["/jobs/100%25", "/jobs/%", "/sweeps/100%25", "/models/50%25"])("%s is the address of nothing, and breaks no page", async (address) => {
  given({});
  history.replaceState(null, "", address);
  render(<App client={makeClient()} />);
  expect((await screen.findAllByRole("alert")).length).toBeGreaterThan(0);
  expect(screen.getByRole("navigation", { name: "Pages" })).toBeTruthy();
});
