/** Readings that are repeated while their failure may be temporary. */

import { isRetryable, isUnreached } from "./http";

/** What the control plane asks for where too many search at once. */
const WAIT_MS = 2000;

/** How long after a reading that failed the next one follows, if nothing polls anyway. */
export const AGAIN_MS = 3000;

interface Asked {
  state: { error: Error | null };
}

/** Interval of a query that does not poll (any longer): it reads again while its failure may be temporary. */
export const untilRead = ({ state: { error } }: Asked) => isRetryable(error) && AGAIN_MS;

/** The same for what costs the control plane much: what it has answered with an error is asked again on request only. */
export const untilReached = ({ state: { error } }: Asked) => isUnreached(error) && AGAIN_MS;

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
