/** The text of a child: that of its parent, whose comments stay, with the values in which the child differs. */

import type { Document } from "yaml";
import type { SubmittedSpec } from "../api/submitted-spec";

type Mapping = Readonly<Record<string, unknown>>;
type Path = readonly string[];

/** The text may name a checkpoint by a job or an alias. */
const BEGINNINGS: readonly Path[] = [["resume_from"], ["train", "resume_from"]];
/** Keys whose defaults the text need not have. */
const FOLDED: readonly Path[] = [["train", "steps"], ["train", "resume_data"]];
const LABELS: Path = ["labels"];

export interface Child {
  /** The specs with every default. */
  parent: Mapping;
  child: Mapping;
  /** Of the child, without defaults. */
  layout: unknown;
  /** Other keys of `train` that were chosen with the layout. */
  options?: Mapping;
}

/** Null if the text cannot be changed. */
export async function childText({ format, text, layoutChanged }: SubmittedSpec, { parent, child, layout, options = {} }: Child): Promise<string | null> {
  const yaml = await import("yaml");
  // Whole numbers of 64 bits stay exact. JSON is YAML; its values are written again, a line each.
  const given: Document = yaml.parseDocument(text, { intAsBigInt: true });
  const document = format === "yaml" || given.errors.length > 0 ? given : new yaml.Document(given.toJS());
  if (document.errors.length > 0 || !yaml.isMap(document.contents)) return null;
  change(document, ["name"], child.name);
  change(document, LABELS, child.labels);
  for (const path of labelsIn(document)) if (at(child, path) === undefined) document.deleteIn(path);
  for (const path of BEGINNINGS) end(document, path, at(child, path));
  for (const path of FOLDED) if (at(child, path) !== at(parent, path)) end(document, path, at(child, path));
  if (layoutChanged) for (const [key, value] of Object.entries({ layout, ...options })) document.setIn(["train", key], document.createNode(value));
  const changed = document.toString({ lineWidth: 0 });
  return asText(yaml.parse(changed, { intAsBigInt: true })) === asText(document.toJS()) ? changed : null;
}

/** Whole numbers alike, whether they were read or set. */
const asText = (value: unknown) => JSON.stringify(value, (_, item: unknown) => (typeof item === "bigint" || Number.isInteger(item) ? String(item) : item));

const labelsIn = (document: Document): Path[] => Object.keys(at(document.toJS(), LABELS) ?? {}).map((key) => [...LABELS, key]);

function at(value: unknown, path: Path): unknown {
  const [first, ...rest] = path;
  if (first === undefined) return value;
  return typeof value === "object" && value !== null ? at((value as Mapping)[first], rest) : undefined;
}

/** Each value of a mapping for itself, so that the comments at the others stay. What is as it was is not written. */
function change(document: Document, path: Path, value: unknown): void {
  if (value === undefined || !document.hasIn(path.slice(0, -1))) return;
  const before: unknown = at(document.toJS(), path);
  if (typeof value === "object" && value !== null && typeof before === "object" && before !== null) {
    for (const [key, inner] of Object.entries(value)) change(document, [...path, key], inner);
  } else if (asText(before) !== asText(value)) {
    document.setIn(path, typeof value === "object" ? document.createNode(value) : value);
  }
}

/** What is null or missing in the child is not in its text. */
function end(document: Document, path: Path, value: unknown): void {
  if (value !== undefined && value !== null) change(document, path, value);
  else if (document.hasIn(path)) document.deleteIn(path);
}
