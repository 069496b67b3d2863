/** The text with which the form of a child begins: its parent's own text where it was kept, else its spec without defaults. */

import type { Job } from "../../api/jobs";
import { getSchema } from "../../api/schema";
import { getSubmittedSpec } from "../../api/submitted-spec";
import { childText } from "../../model/child-text";
import { childSpec, trains } from "../../model/checkpoints";
import { withoutDefaults } from "../../model/spec-defaults";
import { toYaml } from "../../model/yaml";

type Mapping = Readonly<Record<string, unknown>>;

/** Raises `Problem`. */
export async function firstText(parent: Job, checkpoint: string | null, signal?: AbortSignal): Promise<string> {
  const kind = trains(parent) ? "train" : "command";
  const [schema, submitted] = await Promise.all([getSchema(kind, signal), getSubmittedSpec(parent.id, signal)]);
  const spec = childSpec(parent, checkpoint) as Mapping;
  const folded = withoutDefaults(schema, spec) as { train?: { layout?: unknown } };
  const text = submitted && (await childText(submitted, { parent: parent.spec as Mapping, child: spec, layout: folded.train?.layout ?? {} }));
  return text ?? toYaml(folded);
}
