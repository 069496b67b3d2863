/** Numbers and times as people read them. A value that is not there is an en dash. */

const NONE = "–";

export const integer = (value: number | null) => (value === null ? NONE : Math.round(value).toLocaleString("en-US"));

/** A loss in nats: four decimals where they fit, exponent where they do not. */
export function loss(value: number | null): string {
  if (value === null || Number.isNaN(value)) return NONE;
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(2) : value.toFixed(size >= 100 ? 1 : 4);
}

const SCALES: readonly (readonly [number, string])[] = [
  [1e12, "T"],
  [1e9, "B"],
  [1e6, "M"],
  [1e3, "k"],
];

/** `14.2k`, `7.0B`. */
export function short(value: number | null): string {
  if (value === null) return NONE;
  for (const [scale, letter] of SCALES) {
    if (Math.abs(value) >= scale) return `${(value / scale).toFixed(value / scale >= 100 ? 0 : 1)}${letter}`;
  }
  return Math.abs(value) >= 10 || Number.isInteger(value) ? String(Math.round(value)) : value.toFixed(1);
}

/** `1.32B`, `100.2M`: with as many digits as a multiple of `increment` needs. */
export function shortTick(value: number, increment: number): string {
  const [scale, letter] = SCALES.find(([each]) => Math.abs(value) >= each) ?? [1, ""];
  const decimals = (increment / scale).toFixed(12).replace(/\.?0+$/, "").split(".")[1]?.length ?? 0;
  return `${(value / scale).toFixed(decimals)}${letter}`;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value: number | null): string {
  if (value === null) return NONE;
  const power = value < 1 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log2(value) / 10));
  return `${(value / 1024 ** power).toFixed(power === 0 ? 0 : 1)} ${UNITS[power] ?? ""}`;
}

/** `0.42 s`, `8.3 s`, `4 min 10 s`, `3 h 05 min`, `2 d 4 h`. */
export function duration(seconds: number | null): string {
  if (seconds === null || !Number.isFinite(seconds)) return NONE;
  if (seconds < 10) return `${seconds.toFixed(seconds < 1 ? 2 : 1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const two = (n: number) => String(n).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

const PARTS: readonly (readonly [seconds: number, name: string])[] = [[86_400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

/** `2 d 4 h 10 min 30 s`: down to the unit that a multiple of `increment` seconds needs. */
export function exactDuration(seconds: number | null, increment = 1): string {
  if (seconds === null || !Number.isFinite(seconds) || (seconds < 60 && !Number.isInteger(seconds))) return duration(seconds);
  const found: string[] = [];
  let [rest, above] = [Math.round(seconds), Infinity];
  for (const [unit, name] of PARTS) {
    const count = Math.floor(rest / unit);
    const needed = increment % above !== 0;
    if (needed && (count > 0 || found.length > 0)) found.push(`${found.length > 0 && unit < 3600 ? String(count).padStart(2, "0") : count} ${name}`);
    [rest, above] = [rest - count * unit, unit];
  }
  return found.length > 0 ? found.join(" ") : "0 s";
}

const PERIODS: readonly (readonly [number, string])[] = [[86_400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];

/** A length of time that was set: `1 day`, `36 hours`. What is no whole second is as in `duration`. */
export function period(seconds: number): string {
  const [unit, name] = PERIODS.find(([each]) => seconds % each === 0) ?? [];
  if (unit === undefined || name === undefined || seconds === 0) return duration(seconds);
  return `${seconds / unit} ${name}${seconds === unit ? "" : "s"}`;
}

/** `just now`, `12 min ago`, and the day for what is older than a week. */
export function ago(then: Date, now: Date): string {
  const seconds = (now.getTime() - then.getTime()) / 1000;
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return seconds < 604_800 ? `${Math.floor(seconds / 86_400)} d ago` : then.toLocaleDateString();
}

const TIME = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const DATE = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium" });

/** `14:20:05` today, `3 Nov, 14:20:05` this year, `3 Nov 2025, 14:20:05`. */
export function moment(at: Date, now = new Date()): string {
  if (at.toDateString() === now.toDateString()) return TIME.format(at);
  return `${(at.getFullYear() === now.getFullYear() ? DAY : DATE).format(at)}, ${TIME.format(at)}`;
}

export const secondsBetween = (from: Date | null, to: Date | null) =>
  from && to ? Math.max(0, (to.getTime() - from.getTime()) / 1000) : null;

/** Any number, to four digits: `0.8765`, `3.000e-4`, `65,536`. */
export function number(value: number | null): string {
  if (value === null || Number.isNaN(value)) return NONE;
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(3);
  return size >= 1000 ? integer(value) : String(Number(value.toPrecision(4)));
}

/** A share of 1, as percent. */
export const percent = (value: number | null) => (value === null ? NONE : `${(value * 100).toFixed(1)} %`);

/** A layout, with for what it was chosen if the layout advisor chose it. */
export const layoutOf = (layout: string, choice: string | null | undefined) => (choice ? `${layout}, ${choice}` : layout);

/** The dtype of computation, with the reasons of what was left to the devices. */
export function precisionOf(precision: string, compiled: boolean, choices: readonly string[]): string {
  return [compiled ? `${precision}, compiled.` : `${precision}.`, ...choices].join(" ");
}
