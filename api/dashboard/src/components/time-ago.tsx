/** A moment, as people say it; the exact time on hover and for machines. */

import { ago } from "../model/format";

export function TimeAgo({ at, now }: { at: Date; now: Date }) {
  return <time dateTime={at.toISOString()} title={at.toLocaleString()}>{ago(at, now)}</time>;
}
