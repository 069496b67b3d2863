/** How questions to the control plane are asked again. */

import { QueryClient } from "@tanstack/react-query";
import { Problem } from "./http";

/** Polling is its own retry, so a failure is shown soon; a refusal is not asked again. */
const retry = (count: number, error: Error) => count < 1 && error instanceof Problem && error.passing;

export const makeClient = () => new QueryClient({ defaultOptions: { queries: { retry } } });
