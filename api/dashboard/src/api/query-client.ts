/** When requests to the control plane are retried, and what a response says about the session. */

import { MutationCache, QueryCache, QueryClient } from "@tanstack/react-query";
import { isRetryable, Problem } from "./http";
import { untilRead } from "./retrying";

/** Whether this browser is signed in; true until a response says 401. */
export const SIGNED_IN = ["signed in"] as const;
/** Why the link that led here did not sign the browser in. */
export const BAD_LINK = ["bad link"] as const;

/** A failure is shown after one retry; polling, or `untilRead`, reads again after that. A refusal is not retried. */
const retry = (count: number, error: Error) => count < 1 && isRetryable(error);

export function makeClient(): QueryClient {
  const onError = (error: Error) => {
    if (error instanceof Problem && error.status === 401) client.setQueryData(SIGNED_IN, false);
  };
  const client = new QueryClient({
    queryCache: new QueryCache({ onError }),
    mutationCache: new MutationCache({ onError }),
    // Also without a network: the control plane may be on this machine, and what was clicked must not be sent a minute later.
    defaultOptions: { queries: { retry, refetchInterval: untilRead, networkMode: "always" }, mutations: { networkMode: "always" } },
  });
  return client;
}
