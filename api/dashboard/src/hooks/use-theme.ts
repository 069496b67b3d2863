/** The theme that the page shows: the system's, or the one that was chosen in this browser. `data-theme` of the root is `light` or `dark`. */

import { useSyncExternalStore } from "react";
import { keep, readKept } from "./browser-storage";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const KEY = "shardyard.theme";
/** The event of a choice in this tab; one in another tab is a `storage` event. */
const CHOSEN = "shardyard:theme";
const DARK = "(prefers-color-scheme: dark)";

const chosen = (): Theme => THEMES.find((theme) => theme === (document.documentElement.dataset.chosenTheme ?? readKept(KEY))) ?? "system";

function show(): void {
  const theme = chosen();
  document.documentElement.dataset.theme = theme === "system" ? (matchMedia(DARK).matches ? "dark" : "light") : theme;
}

/** Before the first page is drawn, and whenever the system's theme changes, or the choice does in another tab. */
export function followTheme(): void {
  show();
  matchMedia(DARK).addEventListener("change", show);
  onChoice(show);
}

function onChoice(change: () => void): () => void {
  for (const name of [CHOSEN, "storage"]) addEventListener(name, change);
  return () => { for (const name of [CHOSEN, "storage"]) removeEventListener(name, change); };
}

function choose(theme: Theme): void {
  const { dataset } = document.documentElement;
  if (keep(KEY, theme)) delete dataset.chosenTheme;
  else dataset.chosenTheme = theme; // until the page is left
  dispatchEvent(new Event(CHOSEN));
}

export const useTheme = (): [Theme, (theme: Theme) => void] => [useSyncExternalStore(onChoice, chosen), choose];
