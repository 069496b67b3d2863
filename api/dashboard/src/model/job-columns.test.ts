import { expect, test } from "vitest";
import { job } from "../testing/jobs";
import { cellsOf, headOf, loggedName, loggedPath, ordered, orderedBy, pathsOf, sortOf } from "./job-columns";

const trained = (id: string, lr: number | undefined, labels: Record<string, string> = {}) =>
  job({ id, labels, spec: { name: "a", train: { steps: 10, ...(lr !== undefined && { optimizer: { lr } }) } } });

test("a job has the fields of its spec, its labels and its results", () => {
  const cells = cellsOf(trained("job-1", 0.001, { team: "search" }));
  expect(cells.get("spec.train.optimizer.lr")).toBe("0.001");
  expect(cells.get("spec.train.steps")).toBe("10");
  expect(cells.get("label.team")).toBe("search");
});

test("what differs between jobs is offered first", () => {
  const paths = pathsOf([trained("job-1", 0.1), trained("job-2", 0.2, { team: "a" })]);
  expect(paths.slice(0, 2)).toEqual(["label.team", "spec.train.optimizer.lr"]);
  expect(paths).toContain("spec.train.steps");
});

test("heads are short", () => {
  expect(["spec.train.optimizer.lr", "spec.train.steps", "spec.name", "label.team", "result.lastLoss"].map(headOf)).toEqual(["optimizer.lr", "steps", "name", "team", "lastLoss"]);
});

test("numbers are ordered by their size, and jobs without a value come last", () => {
  const jobs = [trained("a", 0.1), trained("b", undefined), trained("c", 0.02), trained("d", 3)];
  const ids = (by: string) => ordered(jobs, by).map(({ id }) => id);
  expect(ids("spec.train.optimizer.lr")).toEqual(["c", "a", "d", "b"]);
  expect(ids("-spec.train.optimizer.lr")).toEqual(["d", "a", "c", "b"]);
});

test("logged metrics are columns, whatever is in their names", () => {
  expect(["acc", "a,b", "100%,%2C"].map((name) => [loggedPath(name), loggedName(loggedPath(name))])).toEqual([["metric.acc", "acc"], ["metric.a%2Cb", "a,b"], ["metric.100%25%2C%252C", "100%,%2C"]]);
  expect([loggedName("label.acc"), headOf(loggedPath("val/a.b,c"))]).toEqual([null, "val/a.b,c"]);
  const cells = cellsOf(trained("job-1", 0.1), new Map([["acc", { last: 0.123456789, lowest: 0.1, highest: 0.5 }], ["lost", { last: null, lowest: 1, highest: 2 }]]));
  expect(["metric.acc", "lowest.acc", "highest.acc", "metric.lost"].map((path) => cells.get(path))).toEqual(["0.123457", "0.1", "0.5", "not finite"]);
});

test("whole numbers have all their digits", () => {
  const cells = cellsOf(trained("job-1", 0.1), new Map([["step", { last: 1_234_567, lowest: 1, highest: 2 ** 53 + 8 }]]));
  expect([cells.get("metric.step"), cells.get("highest.step")]).toEqual(["1234567", "9007200000000000"]);
});

test("jobs are ordered by the newest value of a logged metric", () => {
  const jobs = [trained("a", 1), trained("b", 1), trained("c", 1), trained("d", 1)];
  const logged = new Map(Object.entries({ a: 0.5, b: 0.25, c: null }).map(([id, acc]) => [id, new Map([["acc", { last: acc, lowest: acc, highest: acc }]])]));
  expect(ordered(jobs, "metric.acc", logged).map(({ id }) => id)).toEqual(["b", "a", "c", "d"]);
});

test("times are counted up to now while a job runs", () => {
  const now = new Date("2026-11-21T12:01:04Z");
  const times = (changes: Parameters<typeof job>[0]) => {
    const cells = cellsOf(job(changes), undefined, now);
    return [cells.get("duration"), cells.get("device_time")];
  };
  expect(times({ device_s: 240 })).toEqual(["1 min 00 s", "4 min 00 s"]);
  expect(times({ finished_at: "2026-11-21T12:00:46Z", device_s: 0.5 })).toEqual(["42 s", "0.50 s"]);
  expect(times({ started_at: null })).toEqual([undefined, undefined]);
  expect(["duration", "device_time"].map(headOf)).toEqual(["Duration", "Device time"]);
});

test("the API orders by times and logged metrics, and this page by what else is a column", () => {
  const both = (by: string) => [sortOf(by), orderedBy(sortOf(by) ?? "")];
  expect(["-duration", "device_time", "metric.acc", `-${loggedPath("a,b%", "highest")}`].map(both)).toEqual([
    ["-duration", "-duration"],
    ["device_time", "device_time"],
    ["metric.acc", "metric.acc"],
    ["-highest.a,b%", "-highest.a%2Cb%25"],
  ]);
  expect(["", "label.team", "-spec.train.steps", "name"].map(sortOf)).toEqual([null, null, null, null]);
  expect(["", "newest", "-name"].map(orderedBy)).toEqual(["", "", ""]);
  expect([headOf("lowest.val/loss"), headOf("highest.a%2Cb")]).toEqual(["lowest val/loss", "highest a,b"]);
});
