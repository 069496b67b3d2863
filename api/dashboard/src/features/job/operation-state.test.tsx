import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";

import { operation } from "../../testing/history";
import { OperationState } from "./operation-state";

test("an export without the tokenizer of its training says so, and others do not", () => {
  const missing = "/data/tokenizer.json does not exist on node-1: the export has no tokenizer. Put that of the training there, and export again.";
  const exported = { path: "/data/export-00000100", dtype: "fp32", files: 1, parameters: 12, bytes: 48, tokenizer_missing: missing };
  const { container, rerender } = render(<OperationState operation={operation({ kind: "export", state: "done", exported })} />);
  expect(screen.getByText(missing).className).toContain("bad");
  expect(screen.getByText("/data/export-00000100")).toBeTruthy();
  rerender(<OperationState operation={operation({ kind: "export", state: "done", exported: { ...exported, tokenizer_missing: null } })} />);
  expect(container.textContent).toBe("Exported as fp32, 48 B: /data/export-00000100");
});
