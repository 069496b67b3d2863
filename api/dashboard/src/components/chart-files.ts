/** A chart's files, made in the browser of what is drawn. */

import type { Line } from "./chart";

const FONT = 13;
const PAD = 12;

/** The drawn chart as PNG, with its title and the names of its lines, on the page's colours. */
export async function pictureOf(figure: HTMLElement, { title, lines }: { title: string; lines: readonly Line[] }): Promise<Blob> {
  const plot = figure.querySelector("canvas");
  if (plot === null) throw new Error("The chart is not drawn yet.");
  const style = getComputedStyle(figure);
  const colour = (name: string) => style.getPropertyValue(`--${name}`).trim();
  const scale = plot.width / plot.clientWidth;
  const row = FONT * 2;
  const picture = document.createElement("canvas");
  picture.width = plot.width + 2 * PAD * scale;
  picture.height = plot.height + (2 * PAD + 2 * row) * scale;
  const pen = picture.getContext("2d");
  if (pen === null) throw new Error("This browser draws no pictures.");
  pen.scale(scale, scale);
  pen.fillStyle = colour("surface");
  pen.fillRect(0, 0, picture.width, picture.height);
  pen.textBaseline = "top";
  pen.fillStyle = colour("text");
  pen.font = `600 ${FONT}px ${style.fontFamily}`;
  pen.fillText(title, PAD, PAD);
  pen.drawImage(plot, PAD, PAD + row, plot.clientWidth, plot.clientHeight);
  pen.font = `${FONT}px ${style.fontFamily}`;
  let left = PAD;
  for (const { label, colour: name } of lines.filter(({ faint }) => !faint)) {
    const top = PAD * 1.5 + row + plot.clientHeight;
    pen.fillStyle = colour(name);
    pen.fillRect(left, top + 1, FONT - 3, FONT - 3);
    pen.fillStyle = colour("quiet");
    pen.fillText(label, left + FONT + 2, top);
    left += FONT + pen.measureText(label).width + 20;
  }
  return new Promise((resolve, reject) => { picture.toBlob((file) => { if (file) resolve(file); else reject(new Error("The picture is too large.")); }, "image/png"); });
}

/** The browser's own download. */
export function save(name: string, file: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  setTimeout(() => { URL.revokeObjectURL(link.href); }, 60_000); // a browser may ask first where to save
}
