import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { open } from "../../testing/control-plane";
import { ImageStrip } from "./image-strip";

const image = (step: number) => ({ name: "samples", step, type: "image" as const, rank: 0, bytes: 10, sha256: "a".repeat(64), address: `/samples?step=${step}`, shown: true });

test("where later steps are missing, they are read on request", async () => {
  const onMore = vi.fn();
  const { container } = open(<ImageStrip name="samples" images={[image(1), image(2)]} more={{ busy: false, onMore }} />);
  await expectAccessible(container);
  await userEvent.click(screen.getByRole("button", { name: "More steps" }));
  expect(onMore).toHaveBeenCalledOnce();
});
