/** A job that ends while its page is open, and what it is asked for then. */

import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { type ReactNode, useState } from "react";
import { vi } from "vitest";

/** Its button ends the job. */
export function Ending({ children }: { children: (state: "running" | "succeeded") => ReactNode }) {
  const [ended, end] = useState(false);
  return <><button onClick={() => { end(true); }}>End</button>{children(ended ? "succeeded" : "running")}</>;
}

/** `end` ends the job; from then on requests for `path` wait for `answer`, and `asked` counts them. */
export function ending(path: string) {
  const before = fetch;
  const waiting: ((answer: Response) => void)[] = [];
  let ended = false;
  vi.stubGlobal("fetch", (address: string, init: RequestInit) =>
    ended && new URL(address, "http://control.plane").pathname.endsWith(path)
      ? new Promise<Response>((resolve) => { waiting.push(resolve); })
      : before(address, init));
  const end = () => {
    ended = true;
    return userEvent.click(screen.getByRole("button", { name: "End" }));
  };
  return { end, asked: () => waiting.length, answer: (answer: Response) => { waiting.at(-1)?.(answer); } };
}
