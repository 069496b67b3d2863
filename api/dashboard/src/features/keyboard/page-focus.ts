/** Where the focus of a page goes by keys: its search, and the next or previous of its list. A list's links or buttons are marked `data-listed`. */

/** Those that are shown, in the order of the page. */
const shown = (selector: string) => [...document.querySelectorAll<HTMLElement>(selector)].filter((element) => element.getClientRects().length > 0);

export function focusSearch(): void {
  shown("main input[type=search]")[0]?.focus();
}

/** From the one that has the focus, or whose row has it; otherwise to the first. The ends stay. */
export function moveInList(by: 1 | -1): void {
  const listed = shown("[data-listed]");
  const focused = document.activeElement;
  const at = listed.findIndex((one) => one === focused || (focused !== null && one.closest("tr, li")?.contains(focused)));
  const next = listed[at === -1 ? 0 : Math.min(Math.max(at + by, 0), listed.length - 1)];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}
