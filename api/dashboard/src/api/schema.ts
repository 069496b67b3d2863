/** The JSON Schema of the job spec. */

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

/** Raises `Problem`. */
export const getSchema = async (signal?: AbortSignal): Promise<SchemaNode> => (await get("/v1/schema/job", { signal })) as SchemaNode;
