import { fireEvent, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { given, open } from "../../testing/control-plane";
import { Ending, ending } from "../../testing/ending";
import { job } from "../../testing/jobs";
import { JobFiles } from "./job-files";

const artifact = (more: object) => ({ name: "a", step: null, type: "file", rank: 0, bytes: 10, sha256: "a".repeat(64), media_type: "application/octet-stream", at: 1, ...more });
const image = (step: number) => artifact({ name: "samples/a b", step, type: "image", media_type: "image/png" });

test("images have a slider over their steps, and each file is downloaded by its path", async () => {
  given({
    "GET /v1/jobs/job-1/artifacts": ({ url }) =>
      url.searchParams.get("after") === "x" ? Response.json({ items: [artifact({ name: "z" })], next: null }) : Response.json({ items: [image(1), image(20), artifact({ name: "page.svg", type: "image" })], next: "x" }),
  });
  const { container } = open(<JobFiles job={job({ state: "succeeded" })} />);
  const shown = await screen.findByRole("img", { name: "samples/a b, step 20" });
  expect(shown.getAttribute("src")).toBe(`/v1/jobs/job-1/artifacts/samples/a%20b?step=20&sha256=${"a".repeat(64)}`);
  expect(screen.getAllByRole("img")).toHaveLength(1);
  fireEvent.change(screen.getByRole("slider", { name: "samples/a b" }), { target: { value: "0" } });
  expect(screen.getByRole("img", { name: "samples/a b, step 1" })).toBeTruthy();
  expect(screen.getByRole("link", { name: "Download samples/a b, step 1" }).getAttribute("href")).toBe("/v1/jobs/job-1/artifacts/samples/a%20b?step=1");
  await userEvent.click(screen.getByRole("button", { name: "More files" }));
  await screen.findByRole("link", { name: "Download z" });
  await expectAccessible(container);
});

test("a second page stays while the files are read once more at the job's end", async () => {
  given({ "GET /v1/jobs/job-1/artifacts": ({ url }) => Response.json(url.searchParams.has("after") ? { items: [artifact({ name: "z" })], next: null } : { items: [artifact({})], next: "0/a" }) });
  const { end, answer, asked } = ending("/artifacts");
  open(<Ending>{(state) => <JobFiles job={job({ state })} />}</Ending>);
  await userEvent.click(await screen.findByRole("button", { name: "More files" }));
  await screen.findByRole("link", { name: "Download z" });
  await end();
  await expect.poll(asked).toBe(1);
  expect(screen.getByRole("link", { name: "Download z" })).toBeTruthy();
  answer(Response.json({ items: [artifact({})], next: "0/a" }));
  await expect.poll(asked).toBe(2);
  answer(Response.json({ items: [artifact({ name: "z" }), artifact({ name: "zz" })], next: null }));
  expect(await screen.findByRole("link", { name: "Download zz" })).toBeTruthy();
});

/** Images of `count` steps, in pages. */
function manyImages(count: number) {
  const images = Array.from({ length: count }, (_, at) => image(at + 1));
  return given({
    "GET /v1/jobs/job-1/artifacts": ({ url }) => {
      const [from, limit] = [Number(url.searchParams.get("after")), Number(url.searchParams.get("limit"))];
      return Response.json({ items: images.slice(from, from + limit), next: from + limit < count ? String(from + limit) : null });
    },
  });
}

test("an image's newest step is shown, however many pages its steps have", async () => {
  const requests = manyImages(250);
  open(<JobFiles job={job({ state: "succeeded" })} />);
  expect(await screen.findByAltText("samples/a b, step 250")).toBeTruthy();
  expect(requests.map(({ url }) => url.searchParams.get("after"))).toEqual([null, "200"]);
  expect(screen.queryByText("More steps")).toBeNull();
});

test("of more images than are loaded at once the strip says that later steps are missing", async () => {
  const requests = manyImages(2100);
  open(<JobFiles job={job({ state: "succeeded" })} />);
  expect(await screen.findByAltText("samples/a b, step 2,000")).toBeTruthy();
  const more = screen.getByText("More steps");
  await expect.poll(() => more).toHaveProperty("disabled", false);
  expect(requests).toHaveLength(10);
  await userEvent.click(more);
  expect(await screen.findByAltText("samples/a b, step 2,100")).toBeTruthy();
  expect(screen.queryByText("More steps")).toBeNull();
});

test("a table shows its first rows, of which only the beginning is read", async () => {
  const requests = given({
    "GET /v1/jobs/job-1/artifacts": () => Response.json({ items: [artifact({ name: "errors", type: "table", bytes: 9_000_000 })], next: null }),
    "GET /v1/jobs/job-1/artifacts/errors": () => new Response('text,loss\r\n"<b>a, b</b>",0.5\r\ncu', { status: 206 }),
  });
  const { container } = open(<JobFiles job={job({ state: "succeeded" })} />);
  await userEvent.click(await screen.findByRole("button", { name: "Show errors" }));
  const table = within(await screen.findByRole("region", { name: "errors" }));
  expect(await table.findByText("<b>a, b</b>")).toBeTruthy();
  expect(table.queryByText("cu")).toBeNull();
  expect(table.getByText("The first row")).toBeTruthy(); // not that it has one row
  expect(requests.find(({ url }) => url.pathname.endsWith("/errors"))?.headers.get("Range")).toBe("bytes=0-262143");
  await expectAccessible(container);
  await userEvent.click(table.getByRole("button", { name: "Close" }));
  expect(screen.queryByRole("region", { name: "errors" })).toBeNull();
});

test("what is logged again at the same step is shown on the open page", async () => {
  const again = { digest: "a", text: "text\r\nold\r\n" };
  given({
    "GET /v1/jobs/job-1/artifacts": () => {
      const known = { sha256: again.digest.repeat(64) };
      return Response.json({ items: [artifact({ name: "errors", type: "table", ...known }), { ...image(1), ...known }, artifact({ name: "whole", type: "image", media_type: "image/png", ...known })], next: null });
    },
    "GET /v1/jobs/job-1/artifacts/errors": () => new Response(again.text, { status: 206 }),
  });
  open(<Ending>{(state) => <JobFiles job={job({ state })} />}</Ending>);
  await userEvent.click(await screen.findByRole("button", { name: "Show errors" }));
  expect(await screen.findByText("old")).toBeTruthy();
  Object.assign(again, { digest: "b", text: "text\r\nnew\r\n" });
  await userEvent.click(screen.getByRole("button", { name: "End" })); // the list alone is read again at once
  expect(await screen.findByText("new")).toBeTruthy();
  expect(screen.queryByText("old")).toBeNull();
  const shown = (name: string) => screen.getByRole("img", { name }).getAttribute("src");
  expect(shown("samples/a b, step 1")).toBe(`/v1/jobs/job-1/artifacts/samples/a%20b?step=1&sha256=${"b".repeat(64)}`);
  expect(shown("whole, no step")).toBe(`/v1/jobs/job-1/artifacts/whole?sha256=${"b".repeat(64)}`);
});

test("a job without files says how to log some", async () => {
  given({ "GET /v1/jobs/job-1/artifacts": () => Response.json({ items: [], next: null }) });
  open(<JobFiles job={job({ state: "succeeded" })} />);
  expect(await screen.findByText(/shardyard.log_artifact/)).toBeTruthy();
});

test.each([
  [9_000_000, "a\r\n1\r\n2\r\ncu", "The first 2 rows"],
  [8, "a\r\n1\r\n", "1 row"],
  [3, "a\r\n", "0 rows"],
  [0, "", "The table is empty."],
  [400, `a\r\n${"1\r\n".repeat(100)}`, "100 rows"],
  [404, `a\r\n${"1\r\n".repeat(101)}`, "The first 100 rows"],
])("a table of %d bytes says how many rows are shown, and whether these are all", async (size, text, said) => {
  given({
    "GET /v1/jobs/job-1/artifacts": () => Response.json({ items: [artifact({ name: "errors", type: "table", bytes: size })], next: null }),
    "GET /v1/jobs/job-1/artifacts/errors": () => new Response(text, { status: 206 }),
  });
  open(<JobFiles job={job({ state: "succeeded" })} />);
  await userEvent.click(await screen.findByRole("button", { name: "Show errors" }));
  expect(await screen.findByText(said)).toBeTruthy();
});
