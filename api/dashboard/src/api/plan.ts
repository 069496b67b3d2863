/** The newest plan of a job's gang. */

import { type Plan, toPlan } from "./events";
import { get } from "./http";

/** Raises `Problem`. */
export const getPlan = async (id: string, signal?: AbortSignal): Promise<Plan> => toPlan(await get("/v1/jobs/{job}/plan", { path: { job: id }, signal }));
