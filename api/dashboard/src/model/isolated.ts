/** Which values of a line are drawn as points: a line between two values needs a neighbour. */

/** The places of values that have none beside them. Null is no value; undefined is a place of another line. */
export function isolated(values: readonly (number | null | undefined)[]): number[] {
  const found: number[] = [];
  let last: number | null = null; // the line's place before, if it has a value
  let joined = false; // a line leads to it
  for (const [at, value] of values.entries()) {
    if (value === undefined) continue;
    if (value === null) {
      if (last !== null && !joined) found.push(last);
      last = null;
      joined = false;
    } else {
      joined = last !== null;
      last = at;
    }
  }
  if (last !== null && !joined) found.push(last);
  return found;
}
