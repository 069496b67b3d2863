/** The level of a log line by its words, as the API's filter has them (`service/store/log_search.py`). */

const ERROR = /error|critical|fatal|exception|traceback/i;
const WARNING = /warn/i;

export type LineLevel = "error" | "warning" | null;

export const levelOf = (text: string): LineLevel => (ERROR.test(text) ? "error" : WARNING.test(text) ? "warning" : null);
