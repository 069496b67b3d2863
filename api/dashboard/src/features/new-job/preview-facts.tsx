/** The preview of a spec: its ranks, its batch and its size. */

import type { Schema } from "../../api/http";
import { Facts } from "../../components/facts";
import { integer, short } from "../../model/format";

export function PreviewFacts({ preview }: { preview: Schema<"Preview"> }) {
  const { data, microbatches, micro_batch: micro, global_batch: global, parameters, forms, spares } = preview;
  return (
    <Facts
      title="What would run"
      facts={[
        { name: "Layout", value: preview.layout },
        { name: "Ranks", value: spares > 0 ? `${preview.world_size} and ${spares} spare` : String(preview.world_size) },
        { name: "Global batch", value: `${global} sequences = ${data} data × ${microbatches} micro-batches × ${micro}` },
        { name: "Tokens per step", value: integer(preview.tokens_per_step) },
        { name: "Tokens in total", value: short(preview.tokens) },
        { name: "Parameters", value: parameters === null ? "unknown until the job runs" : `${integer(parameters)} (${short(parameters)})` },
        { name: "Smaller layouts", value: forms.length > 1 ? forms.slice(1).map((form) => form.layout).join(", ") : null },
        { name: "Resumes from", value: preview.resume !== null && <code>{preview.resume}</code> },
      ]}
    />
  );
}
