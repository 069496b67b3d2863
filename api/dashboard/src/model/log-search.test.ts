import { expect, test } from "vitest";
import { ALL, isSearch, read, write } from "./log-search";

test("what is written into an address is read from it", () => {
  for (const query of [ALL, { ...ALL, rank: 0 }, { text: "loss=(nan|inf) & more", regex: true, level: "error", stream: "stderr", rank: 3, wrap: false, since: 1_795_000_000, until: 1_795_000_060 } as const]) {
    expect(read(new URLSearchParams(write(query).toString()))).toEqual(query);
  }
  expect(write(ALL).toString()).toBe("");
});

test.each(["level=loud", "rank=-1", "rank=x", "since=soon", "until=1e9", "rank=", "stream=stdin", "wrap=1", "regex=yes"])("%s means nothing", (address) => {
  expect(read(new URLSearchParams(address))).toEqual(ALL);
});

test("a rank alone is no search", () => {
  expect(isSearch({ ...ALL, rank: 3 })).toBe(false);
  expect(isSearch({ ...ALL, level: "warning" })).toBe(true);
  expect(isSearch({ ...ALL, stream: "stderr" })).toBe(true);
});
