import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { Problem } from "../api/http";
import { ProblemNotice } from "./problem-notice";

test("a refusal names its fields and remedies", () => {
  const errors = [{ field: "layout.tensor", message: "6 heads are not divisible by 4.", remedy: "Use 1, 2, 3 or 6." }];
  render(<ProblemNotice problem={new Problem(422, "invalid_layout", "Invalid layout", "", errors)} />);
  const notice = screen.getByRole("alert");
  expect(notice.textContent).toContain("Invalid layout");
  expect(notice.textContent).toContain("layout.tensor 6 heads are not divisible by 4. Use 1, 2, 3 or 6.");
});
