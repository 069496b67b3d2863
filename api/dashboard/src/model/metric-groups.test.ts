import { expect, test } from "vitest";
import { groupsOf, isFound } from "./metric-groups";

const NAMES = ["gpu/0/memory", "loss", "train/acc", "train/loss", "lr", "val/loss", "/odd"];
const grouped = (text: string) => groupsOf(NAMES.map((name) => ({ name })), text).map(({ name, metrics }) => [name, ...metrics.map((one) => one.name)]);

test("a group is the part before the first slash; names without one are first", () => {
  expect(grouped("")).toEqual([
    ["", "loss", "lr", "/odd"],
    ["gpu", "gpu/0/memory"],
    ["train", "train/acc", "train/loss"],
    ["val", "val/loss"],
  ]);
});

test("a search finds a part of the whole name, in any case, and leaves out groups in which it finds nothing", () => {
  expect(grouped(" LOSS ")).toEqual([["", "loss"], ["train", "train/loss"], ["val", "val/loss"]]);
  expect(grouped("train/")).toEqual([["train", "train/acc", "train/loss"]]);
  expect(grouped("none")).toEqual([]);
  expect(isFound("Learning rate", "rate")).toBe(true);
});
