/** What the browser keeps for the pages. It may refuse to keep anything: then nothing is kept, and each page works without. */

/** For all tabs and later visits, or for this tab until it is left. */
type Storage = "localStorage" | "sessionStorage";

/** Null: there is nothing, or the browser does not say. */
export function readKept(key: string, storage: Storage = "localStorage"): string | null {
  try {
    return globalThis[storage].getItem(key);
  } catch {
    return null; // reading the property may already fail
  }
}

/** Null removes it. Whether the browser has done so. */
export function keep(key: string, value: string | null, storage: Storage = "localStorage"): boolean {
  try {
    if (value === null) globalThis[storage].removeItem(key);
    else globalThis[storage].setItem(key, value);
    return true;
  } catch {
    return false;
  }
}
