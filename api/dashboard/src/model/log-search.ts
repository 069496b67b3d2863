/** When a query of a log is a search. */

import type { LogQuery } from "../api/log-search";

/** Whether the query searches for something; a rank alone is none. */
export const isSearch = ({ text, level, since, until }: LogQuery) => text !== "" || level !== "" || since !== null || until !== null;
