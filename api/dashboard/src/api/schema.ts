/** The JSON Schema of the job spec, of either kind. */

import { get } from "./http";

export interface SchemaNode {
  $ref?: string;
  $defs?: Record<string, SchemaNode>;
  anyOf?: SchemaNode[];
  type?: string;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  const?: unknown;
  properties?: Record<string, SchemaNode>;
  required?: string[];
  additionalProperties?: SchemaNode | boolean;
  items?: SchemaNode;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  pattern?: string;
}

/** `train`: Shardyard's own loop; `command`: a program of the user's own. */
export type Kind = "train" | "command";

/** Raises `Problem`. */
export const getSchema = async (kind: Kind, signal?: AbortSignal): Promise<SchemaNode> => (await get("/v1/schema/job", { query: { kind }, signal })) as SchemaNode;
