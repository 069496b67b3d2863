/** A spec as YAML that reads back to the same value. Specs are JSON values: maps, lists, text, numbers, booleans, null; or bigints. */

/** Text that every YAML reader takes for text without quotes. */
const PLAIN = /^(?:[A-Za-z_/]|\.(?![\d_]))(?:[\w ./@+=-]|:(?=[^ ]))*$/;
/** Other values, in YAML 1.1 or 1.2: also a number may be of a dot and an exponent alone. */
const WORDS = /^(true|false|null|yes|no|on|off|y|n|nan|\.nan|[+.-]*inf|\.+(e[+-]?\d+)?)$/i;

function scalar(value: unknown): string {
  if (typeof value === "bigint") return String(value);
  if (typeof value !== "string") return JSON.stringify(value);
  const plain = PLAIN.test(value) && !WORDS.test(value) && !value.endsWith(" ");
  return plain ? value : JSON.stringify(value);
}

const isMap = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const isEmpty = (value: unknown) => (Array.isArray(value) ? value.length === 0 : isMap(value) && Object.keys(value).length === 0);

function lines(value: unknown, indent: string): string[] {
  if (isEmpty(value)) return [indent + (Array.isArray(value) ? "[]" : "{}")];
  if (Array.isArray(value)) return value.flatMap((item) => listItem(item, indent));
  if (isMap(value)) return Object.entries(value).flatMap(([key, item]) => mapItem(key, item, indent));
  return [indent + scalar(value)];
}

function mapItem(key: string, item: unknown, indent: string): string[] {
  const head = `${indent}${scalar(key)}:`;
  if (typeof item === "object" && item !== null && !isEmpty(item)) return [head, ...lines(item, `${indent}  `)];
  return [`${head} ${lines(item, "").join("")}`];
}

function listItem(item: unknown, indent: string): string[] {
  const [first = "", ...rest] = lines(item, `${indent}  `);
  return [`${indent}- ${first.trimStart()}`, ...rest];
}

export const toYaml = (value: unknown) => `${lines(value, "").join("\n")}\n`;
