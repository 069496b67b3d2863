/** Readings that are repeated while their failure may be temporary. */

import { isRetryable } from "./http";

/** What the control plane asks for where too many search at once. */
const WAIT_MS = 2000;

/** Calls `act` up to `tries` times while its failure may be temporary. Raises the `Problem` that is not, or the last one. */
export async function retrying<T>(act: () => Promise<T>, signal: AbortSignal, tries = Infinity): Promise<T> {
  for (let left = tries - 1; ; left -= 1) {
    try {
      return await act();
    } catch (error) {
      if (signal.aborted || left <= 0 || !isRetryable(error)) throw error;
      await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
    }
  }
}
