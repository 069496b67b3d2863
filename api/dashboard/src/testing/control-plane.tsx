/** A control plane that answers as a test says, and remembers what it was asked. */

import { QueryClientProvider } from "@tanstack/react-query";
import { render } from "@testing-library/react";
import type { ReactNode } from "react";
import { vi } from "vitest";
import { makeClient } from "../api/query-client";

export interface Asked {
  method: string;
  url: URL;
  headers: Headers;
  body: string;
}

/** `answers`: by method and path, such as `GET /v1/jobs`; what is not among them is not there. */
export function given(answers: Record<string, (asked: Asked) => Response>): Asked[] {
  const heard: Asked[] = [];
  vi.stubGlobal("fetch", (path: string, init: RequestInit) => {
    const url = new URL(path, "http://control.plane");
    const asked = { method: init.method ?? "GET", url, headers: new Headers(init.headers), body: (init.body as string | undefined) ?? "" };
    heard.push(asked);
    const answer = answers[`${asked.method} ${url.pathname}`];
    return Promise.resolve(answer ? answer(asked) : Response.json({ title: "No such page", code: "not_found" }, { status: 404 }));
  });
  return heard;
}

/** The page as a browser at this address shows it. */
export function open(page: ReactNode, address = "/") {
  history.replaceState(null, "", address);
  return render(<QueryClientProvider client={makeClient()}>{page}</QueryClientProvider>);
}
