/** Idempotency keys: requests with the same key have one effect. */

/** Not `randomUUID`, which pages without TLS on another machine's address do not have. */
export function newKey(about: string): string {
  const random = crypto.getRandomValues(new Uint8Array(16));
  return `page-${about}-${[...random].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
