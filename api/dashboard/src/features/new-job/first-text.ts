/** The text with which the form of a child begins: its parent's own text where it was kept, else its spec without defaults. */

import type { Job } from "../../api/jobs";
import { getSchema } from "../../api/schema";
import { getJobText, getSubmittedSpec } from "../../api/submitted-spec";
import { childText } from "../../model/child-text";
import { childSpec, trains } from "../../model/checkpoints";
import { exactJson } from "../../model/exact-json";
import { withoutDefaults } from "../../model/spec-defaults";
import { toYaml } from "../../model/yaml";

type Mapping = Readonly<Record<string, unknown>>;

/** Raises `Problem`. */
export async function firstText(parent: Job, checkpoint: string | null, signal?: AbortSignal): Promise<string> {
  const kind = trains(parent) ? "train" : "command";
  const [schema, submitted] = await Promise.all([getSchema(kind, signal), getSubmittedSpec(parent.id, signal)]);
  const spec = childSpec(parent, checkpoint, submitted.resume) as Mapping;
  const folded = withoutDefaults(schema, spec) as { train?: Train };
  const own = { parent: parent.spec as Mapping, child: spec, ...chosen(folded.train ?? {}) };
  const kept = submitted.spec && { ...submitted.spec, layoutChanged: submitted.spec.layoutChanged || parent.layoutChoice !== null };
  const text = kept && (await childText(kept, own));
  if (text !== null) return text;
  const { spec: exact } = (await exactJson(await getJobText(parent.id, signal))) as { spec: unknown };
  return toYaml(withoutDefaults(schema, childSpec({ ...parent, spec: exact }, checkpoint, submitted.resume)));
}

interface Train {
  layout?: Mapping;
  recompute?: unknown;
  offload?: unknown;
}

/** The layout as it is, where the text may ask for one to be chosen, and what was chosen with it. */
function chosen({ layout = {}, recompute, offload }: Train): { layout: Mapping; options: Mapping } {
  const options = Object.entries({ recompute, offload }).filter(([, value]) => value !== undefined);
  return { layout, options: Object.fromEntries(options) };
}
