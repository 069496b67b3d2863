/** A browser's session. It starts with the access token or a code of `shardyard open`; scripts cannot read its cookie. */

import { post, remove } from "./http";

/** Raises `Problem` where the token or code is refused. */
export async function signIn(given: { token: string } | { code: string }): Promise<void> {
  await post("/v1/session", {}, { type: "application/json", text: JSON.stringify(given) });
}

/** Raises `Problem`. */
export async function signOut(): Promise<void> {
  await remove("/v1/session", {});
}

/** The code in the address (`#code=…`), which then is neither in the address nor in the history any more. */
export function takeCode(): string | null {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code !== null) history.replaceState(history.state, "", location.pathname + location.search);
  return code;
}
