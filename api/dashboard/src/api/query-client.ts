/** How questions to the control plane are asked again, and what an answer says about the session. */

import { MutationCache, QueryCache, QueryClient } from "@tanstack/react-query";
import { Problem } from "./http";

/** Whether the control plane knows this browser; true until it says otherwise. */
export const SIGNED_IN = ["signed in"] as const;
/** Why the link that led here did not sign the browser in. */
export const BAD_LINK = ["bad link"] as const;

/** Polling is its own retry, so a failure is shown soon; a refusal is not asked again. */
const retry = (count: number, error: Error) => count < 1 && error instanceof Problem && error.retryable;

export function makeClient(): QueryClient {
  const onError = (error: Error) => {
    if (error instanceof Problem && error.status === 401) client.setQueryData(SIGNED_IN, false);
  };
  const client = new QueryClient({
    queryCache: new QueryCache({ onError }),
    mutationCache: new MutationCache({ onError }),
    defaultOptions: { queries: { retry } },
  });
  return client;
}
