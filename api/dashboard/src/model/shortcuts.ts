/** What keys do on every page. A letter is pressed alone; `g` is followed by the letter of a page. */

export type Action =
  | { kind: "palette" | "help" | "search" | "next" | "previous" }
  | { kind: "go"; address: string }
  /** The first key of two. */
  | { kind: "first" };

const PAGES: Readonly<Record<string, string>> = { j: "/", n: "/new", c: "/cluster", p: "/compare", w: "/sweeps", m: "/models", s: "/secrets" };

const ALONE: Readonly<Record<string, Action>> = {
  "?": { kind: "help" },
  "/": { kind: "search" },
  j: { kind: "next" },
  k: { kind: "previous" },
  g: { kind: "first" },
};

export interface Pressed {
  key: string;
  /** Ctrl, or Cmd. */
  command: boolean;
  alt: boolean;
}

/** `afterFirst`: the key before was `g`. `letters`: whether keys alone do anything. Null: the key has no meaning. */
export function actionOf({ key, command, alt }: Pressed, afterFirst: boolean, letters: boolean): Action | null {
  if (alt) return null;
  if (command) return key.toLowerCase() === "k" ? { kind: "palette" } : null;
  if (!letters) return null;
  if (afterFirst) return PAGES[key] === undefined ? null : { kind: "go", address: PAGES[key] };
  return ALONE[key] ?? null;
}

/** For the help: keys, and what they do. */
export const MEANINGS: readonly (readonly [keys: string, meaning: string])[] = [
  ["Ctrl K", "Commands: pages, jobs and actions (Cmd K on a Mac)"],
  ["?", "This help"],
  ["/", "Search of the page"],
  ["j", "Next in a list"],
  ["k", "Previous in a list"],
  ["Enter", "Open it"],
  ["g j", "Jobs"],
  ["g n", "New job"],
  ["g c", "Cluster"],
  ["g p", "Compare"],
  ["g w", "Sweeps"],
  ["g m", "Models"],
  ["g s", "Secrets"],
];
