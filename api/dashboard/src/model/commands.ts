/** Commands that are found by a part of each of their words. */

export interface Command {
  /** Unique. */
  id: string;
  label: string;
  /** What kind of command it is: `Page`, `Job`, `Action`. */
  kind: string;
  run: () => void;
}

/** Those with every word of `text`; first those that begin with it. */
export function matching(commands: readonly Command[], text: string): readonly Command[] {
  const wanted = text.toLowerCase().trim();
  const words = wanted.split(/\s+/);
  const found = commands.filter(({ label, kind }) => words.every((word) => `${kind} ${label}`.toLowerCase().includes(word)));
  const begins = ({ label }: Command) => label.toLowerCase().startsWith(wanted);
  return [...found.filter(begins), ...found.filter((command) => !begins(command))];
}
