import { expect, test } from "vitest";
import { STATES } from "../api/jobs";
import { job } from "../testing/jobs";
import { grouped, groupingOf, groupings, nameOf } from "./job-groups";

const JOBS = [
  job({ id: "a", state: "failed", actor: "ada", labels: { run: "10" } }),
  job({ id: "b", state: "queued", actor: "bob", labels: { run: "9", team: "x" } }),
  job({ id: "c", state: "failed", actor: "ada", labels: {} }),
  job({ id: "d", state: "napping", actor: "", labels: { run: "10" } }),
];

const ids = (by: string) => grouped(JOBS, by, STATES).map(({ value, jobs }) => [value, jobs.map(({ id }) => id).join("")]);

test("states are in the order of a job's life, one that is not known after them", () => {
  expect(ids("state")).toEqual([["queued", "b"], ["failed", "ac"], ["napping", "d"]]);
});

test("labels are in the order of their values, numbers by their size; jobs without the label come last", () => {
  expect(ids("label.run")).toEqual([["9", "b"], ["10", "ad"], [null, "c"]]);
  expect(ids("label.constructor")).toEqual([[null, "abcd"]]);
});

test("users are in the order of their names", () => {
  expect(ids("user")).toEqual([["", "d"], ["ada", "ac"], ["bob", "b"]]);
});

test("what the jobs have is offered, and what is chosen", () => {
  expect(groupings(JOBS, "")).toEqual(["state", "user", "label.run", "label.team"]);
  expect(groupings([], "label.gone")).toEqual(["state", "user", "label.gone"]);
  expect(["user", "label.team"].map(nameOf)).toEqual(["by user", "by label team"]);
});

test.each([["state", "state"], ["user", "user"], ["label.a.b", "label.a.b"], ["label.", ""], ["name", ""], ["", ""]])("an address that says %s means %s", (text, by) => {
  expect(groupingOf(text)).toBe(by);
});
