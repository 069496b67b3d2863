import { expect, test } from "vitest";
import { downloadLog } from "../features/job/log-download";
import { given } from "../testing/control-plane";
import { continueLogs, KEEP, toLine } from "./logs";

const line = (position: number) => ({ position, rank: 0, attempt: 1, line: position, stream: "stdout", text: `line ${position}`, ts: 1_795_000_000 });
const query = { text: "", regex: false, level: "", stream: "", rank: null, since: null, until: null } as const;

test("a download goes on where a page of long lines has fewer than were asked for", async () => {
  const requests = given({
    "GET /v1/jobs/job-1/logs": ({ url }) => {
      const after = Number(url.searchParams.get("after"));
      return Response.json({ lines: [line(after + 1)], next: after < 2 ? after + 1 : null, removed: 0 });
    },
  });
  const { file, lines, cut } = await downloadLog("job-1", query, () => undefined, new AbortController().signal);
  expect([lines, cut, file.size]).toEqual([3, false, 3 * "2026-11-18T14:27:20.000Z rank 0 stdout line 1\n".length]);
  expect(requests.map(({ url }) => url.searchParams.get("after"))).toEqual(["0", "1", "2"]);
});

test("a page that is left behind shows the newest lines alone, without a gap", async () => {
  const requests = given({
    "GET /v1/jobs/job-1/logs": ({ url }) =>
      Response.json(url.searchParams.has("tail") ? { lines: [line(8), line(9)], next: null, earlier: true, removed: 1 } : { lines: [line(3)], next: 3, removed: 1 }),
  });
  const found = await continueLogs("job-1", null, { lines: [toLine(line(2))], earlier: false, removed: 0 });
  expect([found.lines.map(({ position }) => position), found.earlier, found.removed]).toEqual([[8, 9], true, 1]);
  expect(requests.map(({ url }) => url.searchParams.get("tail"))).toEqual([null, String(KEEP)]);
});

test("lines that are no longer kept are earlier ones", async () => {
  given({ "GET /v1/jobs/job-1/logs": () => Response.json({ lines: [line(KEEP + 1)], next: null, earlier: false, removed: 0 }) });
  const known = { lines: Array.from({ length: KEEP - 1 }, (_, at) => toLine(line(at + 1))), earlier: false, removed: 0 };
  const full = await continueLogs("job-1", null, known);
  expect([full.lines.length, full.earlier]).toEqual([KEEP, false]);
  given({ "GET /v1/jobs/job-1/logs": () => Response.json({ lines: [line(KEEP + 2)], next: null, earlier: false, removed: 0 }) });
  const more = await continueLogs("job-1", null, full);
  expect([more.lines.length, more.lines[0]?.position, more.earlier]).toEqual([KEEP, 2, true]);
});
