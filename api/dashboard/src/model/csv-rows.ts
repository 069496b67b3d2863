/** Rows of a CSV text (RFC 4180). */

/** At most `most` rows. With `cut` the text ends anywhere: then its last row is left out. */
export function csvRows(text: string, most: number, cut: boolean): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  let field = "";
  let quoted = false;
  for (let at = 0; at < text.length && rows.length < most; at += 1) {
    const sign = text.charAt(at);
    if (quoted) {
      if (sign !== '"') field += sign;
      else if (text.charAt(at + 1) === '"') { field += sign; at += 1; }
      else quoted = false;
    } else if (sign === '"') quoted = true;
    else if (sign === ",") { row.push(field); field = ""; }
    else if (sign === "\n") { rows.push([...row, field]); row = []; field = ""; }
    else if (sign !== "\r") field += sign;
  }
  if (!cut && rows.length < most && (row.length > 0 || field !== "")) rows.push([...row, field]);
  return rows;
}
