/** A control plane that answers as a test says, and keeps the requests. */

import { QueryClientProvider } from "@tanstack/react-query";
import { render } from "@testing-library/react";
import type { ReactNode } from "react";
import { vi } from "vitest";
import { makeClient } from "../api/query-client";
import { AddressRouter } from "../components/address-router";

export interface SentRequest {
  method: string;
  url: URL;
  headers: Headers;
  body: string;
}

/** `answers`: by method and path, such as `GET /v1/jobs`; what is not among them is not there. */
export function given(answers: Record<string, (request: SentRequest) => Response>): SentRequest[] {
  const requests: SentRequest[] = [];
  vi.stubGlobal("fetch", (path: string, init: RequestInit) => {
    const url = new URL(path, "http://control.plane");
    const request = { method: init.method ?? "GET", url, headers: new Headers(init.headers), body: (init.body as string | undefined) ?? "" };
    requests.push(request);
    const answer = answers[`${request.method} ${url.pathname}`];
    return Promise.resolve(answer ? answer(request) : Response.json({ title: "No such page", code: "not_found" }, { status: 404 }));
  });
  return requests;
}

/** The connection is lost before the answer is whole. */
export const lost = () => new Response(new ReadableStream({ start: (body) => { body.error(new TypeError("The connection is lost")); } }));

/** The page as a browser at this address shows it. */
export function open(page: ReactNode, address = "/") {
  history.replaceState(null, "", address);
  return render(<QueryClientProvider client={makeClient()}><AddressRouter>{page}</AddressRouter></QueryClientProvider>);
}
