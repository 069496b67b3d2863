/** The control plane's version and what its operator allows. */

import { get, type Schema } from "./http";

export type Server = Schema<"Server">;

/** Raises `Problem`. */
export const getServer = (signal?: AbortSignal): Promise<Server> => get("/v1/server", { signal });
