import { expect, test } from "vitest";
import { type Command, matching } from "./commands";

const command = (label: string, kind = "Page"): Command => ({ id: label, label, kind, run: () => undefined });
const COMMANDS = [command("New job"), command("Jobs"), command("Cluster"), command("Cancel job", "Action")];
const found = (text: string) => matching(COMMANDS, text).map(({ label }) => label);

test("every word is somewhere, and what begins with the text is first", () => {
  expect(found("")).toEqual(["New job", "Jobs", "Cluster", "Cancel job"]);
  expect(found("job")).toEqual(["Jobs", "New job", "Cancel job"]);
  expect(found("JOB ca")).toEqual(["Cancel job"]);
  expect(found("action")).toEqual(["Cancel job"]);
  expect(found("nothing")).toEqual([]);
});
