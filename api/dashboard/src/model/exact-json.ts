/** JSON whose whole numbers of 64 bits stay exact: seeds may have as many. */

/** As `JSON.parse`, but whole numbers beyond 2^53 are bigints. */
export async function exactJson(text: string): Promise<unknown> {
  const { parse } = await import("yaml"); // JSON is YAML; not every browser shows a reviver of `JSON.parse` the digits
  return parse(text, (_, value: unknown) => (typeof value === "bigint" && Number.isSafeInteger(Number(value)) ? Number(value) : value), { intAsBigInt: true });
}
