/** The preview of a spec: its ranks, its batch and its size. */

import type { Schema } from "../../api/http";
import { type Fact, Facts } from "../../components/facts";
import { bytes, integer, layoutOf, precisionOf, short } from "../../model/format";

export function PreviewFacts({ preview }: { preview: Schema<"Preview"> }) {
  const { elastic_layouts: layouts, spares } = preview;
  return (
    <Facts
      title="What would run"
      facts={[
        { name: "Layout", value: layoutOf(preview.layout, preview.layout_choice) },
        { name: "Ranks", value: spares > 0 ? `${preview.world_size} and ${spares} spare` : String(preview.world_size) },
        ...(preview.command === null ? trainingFacts(preview) : [{ name: "Command", value: <code>{preview.command.join(" ")}</code> }]),
        ...(preview.memory ? memoryFacts(preview.memory) : []),
        { name: "Memory per rank", value: preview.needs_dry_run ? UNPLANNED : null },
        { name: "Smaller layouts", value: layouts.length > 1 ? layouts.slice(1).map(({ layout }) => layout).join(", ") : null },
        { name: "Resumes from", value: preview.resume !== null && <code>{preview.resume}</code> },
      ]}
    />
  );
}

function trainingFacts(preview: Schema<"Preview">): Fact[] {
  const { data, microbatches, micro_batch: micro, global_batch: global, parameters } = preview;
  return [
    { name: "Global batch", value: `${global} sequences = ${data} data × ${microbatches} micro-batches × ${micro}` },
    { name: "Tokens per step", value: integer(preview.tokens_per_step ?? 0) },
    { name: "Tokens in total", value: short(preview.tokens ?? 0) },
    { name: "Parameters", value: parameters === null ? "unknown until the job runs" : `${integer(parameters)} (${short(parameters)})` },
    { name: "Precision", value: precisionOf(preview.precision ?? "", preview.compile ?? false, preview.choices) },
  ];
}

const UNPLANNED = "not planned: the server does not run a module of your own. shardyard submit runs it where you are.";

const FITS = { true: "fits", false: "does not fit", null: "not known whether it fits" } as const;

/** What the rank that needs most holds at the peak of a step, and of what. */
function memoryFacts(plan: Schema<"MemoryPlan">): Fact[] {
  const has = plan.device_bytes === null ? "" : ` of ${bytes(plan.device_bytes)} per ${plan.device === "cuda" ? "GPU" : "node"}`;
  const kinds = plan.kinds.map(({ kind, bytes: held }) => `${kind} ${bytes(held)}`);
  const host = plan.host.map(({ kind, bytes: held }) => `${kind} on the host ${bytes(held)}`);
  return [
    { name: "Memory per rank", value: `${bytes(plan.needed_bytes)}${has}: ${FITS[`${plan.fits}`]}${plan.source === "dry run" ? ", by dry run" : ""}` },
    { name: "At the peak", value: [...kinds, ...host, `the process itself ${bytes(plan.reserved_bytes)}`].join(", ") },
    { name: "An estimate", value: plan.notes.join(" ") },
  ];
}
