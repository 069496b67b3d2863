/** Names of metrics in groups by their prefix: `train/loss` and `train/acc` are in the group `train`. */

export interface MetricGroup<T> {
  /** Empty: metrics whose names have no prefix. */
  name: string;
  metrics: readonly T[];
}

/** Whether a name has this text in it, in small or capital letters. */
export const isFound = (name: string, text: string) => name.toLowerCase().includes(text.trim().toLowerCase());

/** Those that are found, in their order; groups in the order of their first metric, what has no prefix first. */
export function groupsOf<T extends { name: string }>(metrics: readonly T[], text: string): readonly MetricGroup<T>[] {
  const groups = new Map<string, T[]>([["", []]]);
  for (const metric of metrics) {
    if (!isFound(metric.name, text)) continue;
    const prefix = metric.name.slice(0, Math.max(0, metric.name.indexOf("/")));
    const known = groups.get(prefix);
    if (known) known.push(metric);
    else groups.set(prefix, [metric]);
  }
  return [...groups].map(([name, found]) => ({ name, metrics: found })).filter((group) => group.metrics.length > 0);
}
