/** Templates of specs, which come with the control plane's version. */

import { get, type Schema } from "./http";

export type Template = Schema<"Template">;

/** Raises `Problem`. */
export const listTemplates = async (signal?: AbortSignal): Promise<readonly Template[]> => (await get("/v1/templates", { signal })).items;
