/** Fails with axe's findings. Colours need a real browser; the browser tests check them. */

import axe from "axe-core";
import { expect } from "vitest";

export async function expectAccessible(container: Element): Promise<void> {
  const rules = { "color-contrast": { enabled: false }, region: { enabled: false } };
  const { violations } = await axe.run(container, { rules });
  expect(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(" ")}`)).toEqual([]);
}
