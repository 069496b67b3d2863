/** Orders of the list of jobs that its filter offers; heads of columns have others. */

import { headOf, orderedBy } from "./job-columns";

const ORDERS: readonly (readonly [string, string])[] = [
  ["newest", "Newest first"],
  ["oldest", "Oldest first"],
  ["name", "By name"],
  ["state", "By state"],
  ["-duration", "Longest first"],
  ["-device_time", "Most device time first"],
];

/** Names of orders that only the address or the head of a column has. */
const OTHERS: Readonly<Record<string, string>> = {
  duration: "Shortest first",
  device_time: "Least device time first",
  "-name": "By name, reversed",
  "-state": "By state, reversed",
};

const SORT = /^(newest|oldest|-?(name|state|duration|device_time|(metric|lowest|highest)\..{1,200}))$/s;

/** Whether the API has this order. */
export const isSort = (text: string) => SORT.test(text);

/** Orders with their names: those that are always offered, and the present one. */
export function offered(sort: string): readonly (readonly [string, string])[] {
  if (ORDERS.some(([known]) => known === sort)) return ORDERS;
  const metric = () => `By ${headOf(orderedBy(sort).replace(/^-/, ""))}, ${sort.startsWith("-") ? "largest" : "smallest"} first`;
  return [...ORDERS, [sort, OTHERS[sort] ?? metric()]];
}
