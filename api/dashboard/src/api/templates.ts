/** Specs to begin with, as the control plane's version brings them. */

import { get, type Schema } from "./http";

export type Template = Schema<"Template">;

/** Raises `Problem`. */
export const listTemplates = async (signal?: AbortSignal): Promise<readonly Template[]> => (await get("/v1/templates", { signal })).items;
