/**
 * Where the keys of a YAML text are, while the user writes it. A half-written text is no YAML, so this is no YAML parser: it handles
 * mappings and lists in block and flow style, quotes and comments. The control plane checks everything else.
 */

export interface Key {
  /** From the top; a list's items are `[]`. */
  path: readonly string[];
  /** Columns of the block-style parts of `path`, by which a line further down is below them or not. */
  indents: readonly number[];
  /** Place of its first character in the text, and its line, from 1. */
  at: number;
  line: number;
}

interface Level {
  indent: number;
  name: string;
}

interface Flow {
  list: boolean;
  name: string | null;
}

const BLOCK_KEY = /^( *)((?:- +)*)(?:("[^"]*"|'[^']*'|[^\s#"'{}[\],:&*!|>%@`-][^:#{}[\],]*?) *:(?= |$))?/;
const FLOW_KEY = /("[^"]*"|'[^']*'|[^\s,:{}[\]"'#]+) *:(?=[\s{["']|$)/y;

class Scanner {
  readonly keys: Key[] = [];
  #block: Level[] = [];
  #flow: Flow[] = [];

  line(text: string, at: number, number: number): void {
    const from = this.#flow.length > 0 ? 0 : this.#blockKey(text, at, number);
    this.#rest(text, from, at, number);
  }

  #blockKey(text: string, at: number, line: number): number {
    const found = BLOCK_KEY.exec(text);
    const [whole = "", spaces = "", dashes = "", name] = found ?? [];
    if (text.trim() === "" || text.trim().startsWith("#") || (dashes === "" && name === undefined)) return whole.length;
    this.#leave(dashes === "" ? spaces.length : spaces.length + 1);
    if (dashes !== "") this.#item(spaces.length);
    if (name !== undefined) {
      this.#block.push({ indent: spaces.length + dashes.length, name: bare(name) });
      this.#note(at + spaces.length + dashes.length, line);
    }
    return whole.length;
  }

  /** Close the blocks that a line which begins at `indent` is not below of. */
  #leave(indent: number): void {
    while ((this.#block.at(-1)?.indent ?? -1) >= indent) this.#block.pop();
  }

  /** A list may stand as far left as the key that it belongs to. */
  #item(indent: number): void {
    const last = this.#block.at(-1);
    if (last?.indent === indent && last.name === "[]") return;
    this.#block.push({ indent, name: "[]" });
  }

  #rest(text: string, from: number, at: number, line: number): void {
    for (let place = from; place < text.length; place += 1) {
      const char = text[place] ?? "";
      if (char === "#" && (place === 0 || text[place - 1] === " ")) return;
      if (this.#flow.length > 0 && this.#flowKey(text, place, at, line)) place = FLOW_KEY.lastIndex - 1;
      else if (char === '"' || char === "'") place = after(text, place, char);
      else this.#bracket(char);
    }
  }

  #flowKey(text: string, place: number, at: number, line: number): boolean {
    const inside = this.#flow.at(-1);
    FLOW_KEY.lastIndex = place;
    const found = inside && !inside.list && inside.name === null ? FLOW_KEY.exec(text) : null;
    if (!found || !inside) return false;
    inside.name = bare(found[1] ?? "");
    this.#note(at + place, line);
    return true;
  }

  #bracket(char: string): void {
    const inside = this.#flow.at(-1);
    if (char === "{" || char === "[") this.#flow.push({ list: char === "[", name: char === "[" ? "[]" : null });
    else if (char === "}" || char === "]") this.#flow.pop();
    else if (char === "," && inside && !inside.list) inside.name = null;
  }

  #note(at: number, line: number): void {
    const flow = this.#flow.flatMap(({ name }) => (name === null ? [] : [name]));
    this.keys.push({ path: [...this.#block.map(({ name }) => name), ...flow], indents: this.#block.map(({ indent }) => indent), at, line });
  }
}

const bare = (name: string) => name.replace(/^(["'])(.*)\1$/, "$2").trim();

/** Place of the quote that ends the text which begins at `place`; the line's end where there is none. */
function after(text: string, place: number, quote: string): number {
  const end = text.indexOf(quote, place + 1);
  return end === -1 ? text.length : end;
}

export function keysOf(text: string): Key[] {
  const scanner = new Scanner();
  let at = 0;
  text.split("\n").forEach((line, index) => {
    scanner.line(line.replace(/\r$/, ""), at, index + 1);
    at += line.length + 1;
  });
  return scanner.keys;
}

/** The field in which the cursor stands: the last key at or before it; on an empty line, what the line would be below of. */
export function pathAt(text: string, cursor: number): readonly string[] {
  const before = keysOf(text).filter((key) => key.at <= cursor).at(-1);
  if (before === undefined) return [];
  const begin = text.lastIndexOf("\n", cursor - 1) + 1;
  const end = text.indexOf("\n", cursor);
  const empty = text.slice(begin, end === -1 ? text.length : end).trim() === "";
  return empty ? before.path.slice(0, before.indents.filter((indent) => indent < cursor - begin).length) : before.path;
}

/** The key that an error's field means, or the nearest one above it that the text has: `train.data.files[0]` → `files`. */
export function keyOf(text: string, field: string): Key | null {
  const parts = field.replace(/\[\d+\]/g, ".[]").split(".");
  const keys = keysOf(text);
  for (let length = parts.length; length > 0; length -= 1) {
    const path = parts.slice(0, length).join(".");
    const found = keys.find((key) => key.path.join(".") === path);
    if (found) return found;
  }
  return null;
}

/** Whether the text is a sweep over a job, by its part `sweep`. */
export const isSweep = (text: string) => keysOf(text).some(({ path }) => path.length === 1 && path[0] === "sweep");
/** The kind of the spec that is written, by its keys at the top. */
export const kindOf = (text: string) => (keysOf(text).some(({ path }) => path.length === 1 && path[0] === "command") ? "command" : "train");
