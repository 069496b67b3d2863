/** Signs the browser in by the code of a link, also where the link opens in a tab that shows its page already. */

import type { QueryClient } from "@tanstack/react-query";
import { BAD_LINK } from "../../api/query-client";
import { signIn, takeCode } from "../../api/session";

/** If the address has a code, all that is shown is read again, or the sign-in page says why not. */
export async function signInByLink(client: QueryClient): Promise<void> {
  const code = takeCode();
  if (code === null) return;
  try {
    await signIn({ code });
    await client.resetQueries();
  } catch (error) {
    client.setQueryData(BAD_LINK, error);
  }
}

/** A link that differs from the address in its fragment alone loads no page. Returns the end of it. */
export function followLinks(client: QueryClient): () => void {
  const follow = () => { void signInByLink(client); };
  addEventListener("hashchange", follow);
  return () => { removeEventListener("hashchange", follow); };
}
