/** Axes of parallel coordinates: one for each parameter and one for the metric. A place on an axis is from 0 (below) to 1 (above). */

import type { Parameter, Sweep, Trial, Value } from "../api/sweeps";
import { compare, digits, shortNames, valueText } from "./sweeps";

export interface Tick {
  place: number;
  text: string;
}

export interface Axis {
  /** A parameter's path; `METRIC` for the metric. */
  id: string;
  name: string;
  ticks: readonly Tick[];
  /** The place of a trial; null: it has no value. */
  place: (trial: Trial) => number | null;
  /** The value at a place, as text. */
  text: (place: number) => string;
  /** How far a key moves the end of a brush. */
  step: number;
}

/** No parameter has this name. */
export const METRIC = "";

/** Axis → the places, lowest and highest, between which trials are kept. */
export type Brushes = Readonly<Record<string, readonly [low: number, high: number]>>;

/** More ticks of a list would overlap. */
const MOST_TICKS = 12;

/** Each parameter's axis in the order of the spec, then the metric's, whose ends are those of the values. */
export function axesOf({ parameters, metric }: Pick<Sweep, "parameters" | "metric">, trials: readonly Trial[]): Axis[] {
  const names = shortNames(parameters.map(({ path }) => path));
  const own = parameters.map((parameter) => parameterAxis(parameter, names.get(parameter.path) ?? parameter.path));
  const values = trials.flatMap(({ value }) => value ?? []);
  const ends = range(values.length > 0 ? values.reduce((a, b) => Math.min(a, b)) : 0, values.length > 0 ? values.reduce((a, b) => Math.max(a, b)) : 1, false);
  return [...own, { id: METRIC, name: metric, ...ends, place: ({ value }) => (value === null ? null : ends.of(value)) }];
}

function parameterAxis(parameter: Parameter, name: string): Axis {
  const { path } = parameter;
  if (parameter.values !== null) return { id: path, name, ...choices(path, parameter.values) };
  const ends = range(parameter.min, parameter.max, parameter.log);
  const place = ({ parameters }: Trial) => {
    const value = parameters?.[path];
    return typeof value === "number" ? ends.of(value) : null;
  };
  return { id: path, name, ...ends, place };
}

/** The values of a list, evenly apart. */
function choices(path: string, values: readonly Value[]): Omit<Axis, "id" | "name"> {
  const texts = values.map(valueText);
  const at = (index: number) => (texts.length === 1 ? 0.5 : index / (texts.length - 1));
  const every = Math.ceil(texts.length / MOST_TICKS);
  const place = ({ parameters }: Trial) => {
    const index = parameters === null ? -1 : values.indexOf(parameters[path]);
    return index === -1 ? null : at(index);
  };
  const text = (where: number) => texts[Math.round(where * (texts.length - 1))] ?? "";
  return { ticks: texts.flatMap((one, index) => (index % every === 0 ? [{ place: at(index), text: one }] : [])), place, text, step: 1 / Math.max(1, texts.length - 1) };
}

function range(min: number, max: number, log: boolean) {
  const [low, high] = log ? [Math.log(min), Math.log(max)] : [min, max];
  const size = high - low;
  const of = (value: number) => (size === 0 ? 0.5 : Math.min(1, Math.max(0, ((log ? Math.log(value) : value) - low) / size)));
  const back = (place: number) => (log ? Math.exp(low + place * size) : low + place * size);
  const inner = log ? powers(min, max) : [0.25, 0.5, 0.75].map(back);
  const places = size === 0 ? [0.5] : [0, ...inner.map(of).filter((place) => place > 0.06 && place < 0.94), 1];
  return { of, step: 0.05, text: (place: number) => digits(back(place)), ticks: places.map((place) => ({ place, text: digits(back(place)) })) };
}

/** The powers of ten between both, at most about eight. */
function powers(min: number, max: number): number[] {
  const [first, last] = [Math.ceil(Math.log10(min)), Math.floor(Math.log10(max))];
  const every = Math.max(1, Math.ceil((last - first) / 8));
  return Array.from({ length: Math.max(0, Math.floor((last - first) / every) + 1) }, (_, index) => 10 ** (first + index * every));
}

/** The trials whose places are within all brushes. */
export function brushed(trials: readonly Trial[], axes: readonly Axis[], brushes: Brushes): Trial[] {
  const held = axes.flatMap((axis) => {
    const brush = brushes[axis.id];
    return brush ? [{ axis, brush }] : [];
  });
  if (held.length === 0) return [...trials];
  return trials.filter((trial) => held.every(({ axis, brush: [low, high] }) => {
    const place = axis.place(trial);
    return place !== null && place >= low - 1e-9 && place <= high + 1e-9;
  }));
}

/** Levels of colour: the last is the best fifth. */
export const LEVELS = 5;

/** Trial's number → its level from 0 (the worst fifth of the values) to 4 (the best). Trials without a value have none. */
export function levelsOf(trials: readonly Trial[], goal: Sweep["goal"]): ReadonlyMap<number, number> {
  const valued = trials.flatMap(({ number: of, value }) => (value === null ? [] : [{ of, value }]));
  valued.sort((a, b) => compare(goal, b.value, a.value));
  return new Map(valued.map(({ of }, index) => [of, Math.ceil(((index + 1) * LEVELS) / valued.length) - 1]));
}
