import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, onTestFinished, test } from "vitest";
import { Problem } from "../../api/http";
import { BAD_LINK, makeClient } from "../../api/query-client";
import { JobsPage } from "../../routes/jobs";
import { TopBar } from "../../routes/top-bar";
import { expectAccessible } from "../../testing/accessible";
import { type SentRequest, given, open } from "../../testing/control-plane";
import { followLinks } from "./link";
import { SignedIn } from "./sign-in";

const page = <SignedIn><TopBar /><JobsPage /></SignedIn>;

const refusal = () => Response.json({ title: "Not signed in", code: "unauthenticated", detail: "This needs a token." }, { status: 401 });

/** A control plane that answers once its token was given. */
function guarded(): SentRequest[] {
  let known = false;
  const asked = (body: unknown) => () => (known ? Response.json(body) : refusal());
  return given({
    "GET /v1/nodes": asked({ items: [] }),
    "GET /v1/jobs": asked({ items: [], next: null }),
    "GET /v1/server": asked({ version: "1", fault_injection: false, authentication: true }),
    "POST /v1/session": ({ body }) => {
      known = body === '{"token":"the token"}' || body === '{"code":"fresh"}';
      return known ? Response.json({ seconds: 60 }) : refusal();
    },
    "DELETE /v1/session": () => {
      known = false;
      return Response.json({ seconds: 0 });
    },
  });
}

test("who is not signed in learns how, signs in with the token where he stands, and out again", async () => {
  const user = userEvent.setup();
  guarded();
  const { container } = open(page, "/?state=running");
  await screen.findByText("shardyard open");
  const token = screen.getByLabelText(/access token/);
  expect(token.getAttribute("type")).toBe("password");
  await expectAccessible(container);
  await user.type(token, "wrong{Enter}");
  expect((await screen.findByRole("alert")).textContent).toContain("This needs a token.");
  await user.clear(token);
  await user.type(token, "the token{Enter}");
  await screen.findByRole("heading", { name: "Jobs" });
  expect(location.search).toBe("?state=running");
  await user.click(await screen.findByRole("button", { name: "Sign out" }));
  await screen.findByText("shardyard open");
});

test("a link that is too old is said", async () => {
  guarded();
  const client = makeClient();
  client.setQueryData(BAD_LINK, new Problem(401, "unauthenticated", "Not signed in", "This link has been used or has expired."));
  render(<QueryClientProvider client={client}>{page}</QueryClientProvider>);
  expect((await screen.findByRole("alert")).textContent).toContain("has expired");
});

/** The page in a tab that follows links, and a link that is pasted into it. */
function inTab() {
  history.replaceState(null, "", "/?state=running");
  const client = makeClient();
  render(<QueryClientProvider client={client}>{page}</QueryClientProvider>);
  onTestFinished(followLinks(client));
  return (code: string) => { location.hash = `code=${code}`; };
}

test("a link that is pasted into a tab of its page signs in there, and its code stays nowhere", async () => {
  const requests = guarded();
  const paste = inTab();
  await screen.findByText("shardyard open");
  paste("old");
  expect((await screen.findByRole("alert")).textContent).toContain("This needs a token.");
  expect(location.href).toMatch(/\/\?state=running$/);
  paste("fresh");
  await screen.findByRole("heading", { name: "Jobs" });
  expect(location.href).toMatch(/\/\?state=running$/);
  expect(requests.filter(({ method }) => method === "POST").map(({ body }) => body)).toEqual(['{"code":"old"}', '{"code":"fresh"}']);
  await userEvent.setup().click(await screen.findByRole("button", { name: "Sign out" }));
  await screen.findByText("shardyard open");
  expect(screen.queryByRole("alert")).toBeNull(); // the old link is no news any more
});

test("of a bad link and a bad token the newer one is said", async () => {
  const user = userEvent.setup();
  guarded();
  const client = makeClient();
  client.setQueryData(BAD_LINK, new Problem(401, "unauthenticated", "Not signed in", "This link has expired."));
  render(<QueryClientProvider client={client}>{page}</QueryClientProvider>);
  await expect.poll(() => screen.queryByRole("alert")?.textContent).toContain("has expired");
  await user.type(screen.getByLabelText(/access token/), "wrong{Enter}");
  await expect.poll(() => screen.queryByRole("alert")?.textContent).toContain("This needs a token.");
});
