import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { expectAccessible } from "../testing/accessible";
import { given, lost, open } from "../testing/control-plane";
import { SecretsPage } from "./secrets";

afterEach(() => { vi.useRealTimers(); });

const wire = (name: string) => ({ name, actor: "local", created_at: "2026-11-20T10:00:00Z", updated_at: "2026-11-20T11:00:00Z" });

test("names are listed, and a secret is removed after a confirmation", async () => {
  const names = new Set(["HF_TOKEN", "KEY"]);
  const items = () => Response.json({ items: [...names].map(wire) });
  given({
    "GET /v1/secrets": items,
    "DELETE /v1/secrets/KEY": () => {
      names.delete("KEY");
      return items();
    },
  });
  const { container } = open(<SecretsPage />, "/secrets");
  const table = within(await screen.findByRole("region", { name: "Stored secrets" }));
  expect(table.getAllByRole("rowheader").map((cell) => cell.textContent)).toEqual(["HF_TOKEN", "KEY"]);
  await expectAccessible(container);
  fireEvent.click(table.getByRole("button", { name: "Remove… KEY" }));
  fireEvent.click(screen.getByRole("button", { name: "Remove" }));
  await waitFor(() => { expect(table.queryByText("KEY")).toBeNull(); });
});

test("a secret is stored, and its text does not stay on the page", async () => {
  const sent: string[] = [];
  given({
    "GET /v1/secrets": () => Response.json({ items: sent.map(() => wire("HF_TOKEN")) }),
    "PUT /v1/secrets/HF_TOKEN": ({ body }) => {
      sent.push(body);
      return Response.json(wire("HF_TOKEN"));
    },
  });
  const { container } = open(<SecretsPage />, "/secrets");
  expect(await screen.findByText("No secrets yet")).toBeTruthy();
  await expectAccessible(container);
  const store = screen.getByRole<HTMLButtonElement>("button", { name: "Store" });
  fireEvent.change(screen.getByLabelText("Name"), { target: { value: "HF_TOKEN" } });
  fireEvent.change(screen.getByLabelText(/^Text/), { target: { value: "short" } });
  expect(store.disabled).toBe(true);
  fireEvent.change(screen.getByLabelText(/^Text/), { target: { value: "hf_abcdefgh\n" } });
  fireEvent.click(store);
  expect(await screen.findByText("secrets: [HF_TOKEN]")).toBeTruthy();
  expect(sent).toEqual([JSON.stringify({ value: "hf_abcdefgh\n" })]);
  expect(container.innerHTML).not.toContain("hf_abcdefgh");
  expect(screen.getByLabelText<HTMLTextAreaElement>(/^Text/).value).toBe("");
  expect(await screen.findByRole("rowheader", { name: "HF_TOKEN" })).toBeTruthy();
});

test("a name that is stored already is replaced, and a refusal is shown", async () => {
  given({
    "GET /v1/secrets": () => Response.json({ items: [wire("KEY")] }),
    "PUT /v1/secrets/KEY": () => Response.json({ code: "secrets_key_unusable", title: "The key of secrets cannot be used", detail: "It is another one." }, { status: 503 }),
  });
  open(<SecretsPage />, "/secrets");
  await screen.findByRole("rowheader", { name: "KEY" });
  fireEvent.change(screen.getByLabelText("Name"), { target: { value: "KEY" } });
  fireEvent.change(screen.getByLabelText(/^Text/), { target: { value: "another-text" } });
  fireEvent.click(screen.getByRole("button", { name: "Replace KEY" }));
  expect(await screen.findByText(/It is another one/)).toBeTruthy();
});

test("names are read again until the control plane is back", async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  let back = false;
  const requests = given({ "GET /v1/secrets": () => (back ? Response.json({ items: [wire("KEY")] }) : lost()) });
  open(<SecretsPage />, "/secrets");
  expect((await screen.findByRole("alert")).textContent).toContain("Retrying.");
  for (let seconds = 0; seconds < 20; seconds += 1) await vi.advanceTimersByTimeAsync(1000);
  expect(requests.length).toBeGreaterThan(4);
  back = true;
  for (let seconds = 0; seconds < 5; seconds += 1) await vi.advanceTimersByTimeAsync(1000);
  expect(await screen.findByRole("rowheader", { name: "KEY" })).toBeTruthy();
  expect(screen.queryByRole("alert")).toBeNull();
  const read = requests.length;
  for (let seconds = 0; seconds < 10; seconds += 1) await vi.advanceTimersByTimeAsync(1000);
  expect(requests).toHaveLength(read);
});

test("a refusal is not read again", async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  const requests = given({ "GET /v1/secrets": () => Response.json({ title: "Not for you", code: "forbidden" }, { status: 403 }) });
  open(<SecretsPage />, "/secrets");
  expect((await screen.findByRole("alert")).textContent).toContain("Not for you");
  for (let seconds = 0; seconds < 10; seconds += 1) await vi.advanceTimersByTimeAsync(1000);
  expect(requests).toHaveLength(1);
});
