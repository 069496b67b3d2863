/** The charts of what a training reports itself, in their order. */

import type { Curve, SeriesName } from "../api/curves";
import { integer, loss, number, percent } from "./format";
import { isFound } from "./metric-groups";

export interface TrainingChart {
  name: SeriesName;
  title: string;
  label: string;
  colour: string;
  format: (value: number | null) => string;
  /** Has sense on a logarithmic axis. */
  log?: boolean;
  /** Set by a schedule, not measured: there is nothing to smooth. */
  exact?: boolean;
}

export const TRAINING_CHARTS: readonly TrainingChart[] = [
  { name: "loss", title: "Loss (nats per token)", label: "Train", colour: "blue", format: loss, log: true },
  { name: "tokens_per_s", title: "Tokens per second", label: "Tokens/s", colour: "green", format: integer },
  { name: "mfu", title: "Model FLOPs utilisation", label: "MFU", colour: "violet", format: percent },
  { name: "grad_norm", title: "Gradient norm", label: "Norm", colour: "violet", format: number, log: true },
  { name: "lr", title: "Learning rate", label: "Rate", colour: "grey", format: number, exact: true },
  { name: "loss_scale", title: "Loss scale", label: "Scale", colour: "red", format: number, log: true, exact: true },
];

/** Those whose title has this text in it. Whether a chart is there does not depend on the range. */
export const chartsFound = (whole: Curve, text: string): readonly TrainingChart[] =>
  TRAINING_CHARTS.filter(({ name, title }) => isFound(title, text) && whole.buckets.some(({ values }) => values[name] !== undefined));
