import { expect, test } from "vitest";
import { given } from "../testing/control-plane";
import { signIn, takeCode } from "./session";

test("a code is taken out of the address, once", () => {
  history.replaceState(null, "", "/jobs/one?log=1#code=a-b_c.d");
  expect(takeCode()).toBe("a-b_c.d");
  expect(location.href).toMatch(/\/jobs\/one\?log=1$/);
  expect(takeCode()).toBeNull();
});

test("another fragment stays", () => {
  history.replaceState(null, "", "/#content");
  expect(takeCode()).toBeNull();
  expect(location.hash).toBe("#content");
});

test("a code goes in the body, not in the address", async () => {
  const requests = given({ "POST /v1/session": () => Response.json({ seconds: 60 }) });
  await signIn({ code: "abc" });
  expect(requests.map(({ url, body }) => [url.search, body])).toEqual([["", '{"code":"abc"}']]);
});
