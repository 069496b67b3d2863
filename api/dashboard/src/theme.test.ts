import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

/** WCAG 2.2 AA, of text of any size. */
const LEAST = 4.5;

type Colour = readonly [number, number, number];

const read = (file: string) => readFileSync(new URL(file, import.meta.url), "utf8");
const THEME = read("./theme.css");
const BADGE = read("./components/state-badge.css");

const hex = (text: string): Colour => {
  const long = text.length === 4 ? text.slice(1).replaceAll(/./g, "$&$&") : text.slice(1);
  return (long.match(/../g) ?? []).map((part) => parseInt(part, 16)) as unknown as Colour;
};

/** The colours of a block of rules, by their names. */
const coloursOf = (selector: string) => {
  const block = THEME.slice(THEME.indexOf(`${selector} {`)).split("}", 1)[0] ?? "";
  return new Map([...block.matchAll(/--([a-z-]+): (#[0-9a-f]+);/g)].map(([, name = "", value = ""]) => [name, hex(value)]));
};

const LIGHT = coloursOf(":root");
const THEMES = { light: LIGHT, dark: new Map([...LIGHT, ...coloursOf(':root[data-theme="dark"]')]) };

const mixed = (one: Colour, other: Colour, part: number) => one.map((value, at) => Math.round(value * part + (other[at] ?? 0) * (1 - part))) as unknown as Colour;

function luminance(colour: Colour): number {
  const [red = 0, green = 0, blue = 0] = colour.map((value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one: Colour, other: Colour): number {
  const [dark = 0, bright = 0] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (bright + 0.05) / (dark + 0.05);
}

/** Per cent of the tone in a mix of the badge's rule: its text, its ground. */
const share = (property: string) => Number(new RegExp(`^  ${property}: color-mix\\(in srgb, var\\(--tone\\) (\\d+)%`, "m").exec(BADGE)?.[1]) / 100;

const TONES = [...new Set([...BADGE.matchAll(/--tone: var\(--([a-z]+)\)/g)].map(([, name = ""]) => name))];

test.each(Object.entries(THEMES))("in the %s theme text keeps its contrast, also on a row that is pointed at or selected", (_, theme) => {
  const of = (name: string) => theme.get(name) ?? expect.fail(name);
  // 9 %: of a selected row, and of a button that warns (job-table.css, theme.css).
  const selected = mixed(of("blue"), of("surface"), 0.09);
  const grounds = { surface: of("surface"), page: of("page"), sunken: of("sunken"), hover: of("hover"), selected };
  const low: string[] = [];
  const check = (text: Colour, ground: Colour, name: string) => { if (!(contrast(text, ground) >= LEAST)) low.push(`${name}: ${contrast(text, ground).toFixed(2)}`); };
  for (const [place, ground] of Object.entries(grounds)) {
    for (const name of ["text", "quiet", "blue", "red"]) check(of(name), ground, `${name} on ${place}`);
    for (const tone of TONES) check(mixed(of(tone), of("text"), share("color")), mixed(of(tone), ground, share("background")), `${tone} badge on ${place}`);
  }
  check(of("red"), mixed(of("red"), of("surface"), 0.09), "a button that warns, pointed at");
  check(hex("#fff"), of("fill"), "white on fill");
  expect(low).toEqual([]);
  expect(TONES.length).toBeGreaterThan(4);
});
