// Charts as SVG: axes, lines, points, bands. Colours are CSS classes, so that the style sheet sets them for the light and
// dark theme; a downloaded chart has its computed colours written into it.
import { button, download, h, s } from "./dom.js";

/** @typedef {{ log?: boolean, from: number, to: number, label: string, ticks?: number[], format?: (value: number) => string }} Axis */

export const SIZE = { width: 640, height: 360, left: 88, right: 18, top: 16, bottom: 48 };
/** Largest width of a chart on a phone, in SVG units; fewer units make its text larger. */
const PHONE_WIDTH = 460;

/** A function from a value on an axis to a coordinate between `start` and `end`. @param {Axis} axis @param {number} start @param {number} end @returns {(value: number) => number} */
export function scale(axis, start, end) {
  const transform = axis.log ? Math.log2 : (/** @type {number} */ value) => value;
  const [from, to] = [transform(axis.from), transform(axis.to)];
  return (value) => start + ((transform(value) - from) / (to - from || 1)) * (end - start);
}

/** The values at which an axis has a tick: about seven. @param {Axis} axis */
function ticks(axis) {
  if (axis.ticks) return axis.ticks;
  if (axis.log) {
    const [from, to] = [Math.ceil(Math.log2(axis.from)), Math.floor(Math.log2(axis.to))];
    const step = Math.max(1, Math.ceil((to - from) / 7));
    return Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, index) => 2 ** (from + index * step));
  }
  const minStep = (axis.to - axis.from) / 7;
  const unit = 10 ** Math.floor(Math.log10(minStep));
  const step = [1, 2, 5, 10].map((factor) => factor * unit).find((candidate) => candidate >= minStep) ?? minStep;
  const wholeStep = Math.max(step, 1);
  const values = [];
  for (let value = Math.ceil(axis.from / wholeStep) * wholeStep; value <= axis.to; value += wholeStep) values.push(value);
  return values;
}

/**
 * Axes with a grid, and the scales to draw on them.
 * @param {Axis} x @param {Axis} y @param {{ title: string, width?: number, height?: number, left?: number, right?: number, role?: string }} options
 */
export function frame(x, y, options) {
  const { left, right, top, bottom } = { ...SIZE, ...options };
  const desktopWidth = options.width ?? SIZE.width;
  const [width, height] = [globalThis.innerWidth < 560 ? Math.min(desktopWidth, PHONE_WIDTH) : desktopWidth, options.height ?? SIZE.height];
  const [toX, toY] = [scale(x, left, width - right), scale(y, height - bottom, top)];
  const text = (/** @type {Axis} */ axis, /** @type {number} */ value) => (axis.format ?? String)(value);
  const marks = s("g", { class: "axes" },
    ticks(x).filter((_, index) => width > PHONE_WIDTH || index % 2 === 0).map((value) => s("g", {},
      s("line", { class: "grid", x1: toX(value), x2: toX(value), y1: top, y2: height - bottom }),
      s("text", { x: toX(value), y: height - bottom + 18, "text-anchor": "middle" }, text(x, value)))),
    ticks(y).map((value) => s("g", {},
      s("line", { class: "grid", x1: left, x2: width - right, y1: toY(value), y2: toY(value) }),
      s("text", { x: left - 8, y: toY(value) + 4, "text-anchor": "end" }, text(y, value)))),
    s("text", { class: "label", x: (left + width - right) / 2, y: height - 8, "text-anchor": "middle" }, x.label),
    s("text", { class: "label", transform: `translate(14 ${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, y.label));
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: options.role ?? "img", "aria-label": options.title }, s("title", {}, options.title), marks);
  return { svg, toX, toY, left, right, top, bottom, width, height };
}

/** The path data of a line through points. @param {[number, number][]} points */
export function path(points) {
  return points.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
}

const PROPERTIES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family", "font-weight", "text-anchor"];

/** A chart as SVG text that needs no style sheet, with its size: computed styles are written into it. @param {SVGElement} svg */
export function serializeChart(svg) {
  const copy = /** @type {SVGElement} */ (svg.cloneNode(true));
  const [from, to] = [svg.querySelectorAll("*"), copy.querySelectorAll("*")];
  from.forEach((element, index) => {
    const style = getComputedStyle(element);
    for (const name of PROPERTIES) {
      const value = style.getPropertyValue(name);
      if (value && !["none", "normal"].includes(value) || name === "fill") to[index].setAttribute(name, value);
    }
    to[index].removeAttribute("class");
    to[index].removeAttribute("tabindex");
  });
  const [, , width, height] = (svg.getAttribute("viewBox") ?? "0 0 640 360").split(" ").map(Number);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", String(width));
  copy.setAttribute("height", String(height));
  const background = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [name, value] of Object.entries({ width, height, fill: getComputedStyle(document.body).backgroundColor })) background.setAttribute(name, String(value));
  copy.insertBefore(background, copy.firstChild);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

/** Downloads a chart. @param {SVGElement} svg @param {string} name @param {"svg" | "png"} format */
async function save(svg, name, format) {
  const { text, width, height } = serializeChart(svg);
  const blob = new Blob([text], { type: "image/svg+xml" });
  if (format === "svg") return download(`${name}.svg`, blob);
  const image = new Image();
  image.src = URL.createObjectURL(blob);
  await image.decode();
  const canvas = h("canvas", { width: width * 2, height: height * 2 });
  canvas.getContext("2d").drawImage(image, 0, 0, width * 2, height * 2);
  URL.revokeObjectURL(image.src);
  canvas.toBlob((/** @type {Blob | null} */ png) => png && download(`${name}.png`, png));
}

/** A chart with a caption and download buttons. @param {SVGElement} svg @param {string} name @param {string} caption */
export function figure(svg, name, caption) {
  const fileName = name.replaceAll(/[^\w.-]+/g, "-").slice(0, 60);
  return h("figure", {}, svg, h("figcaption", {}, caption, " ", h("span", { class: "downloads" },
    button("SVG", () => void save(svg, fileName, "svg"), { class: "quiet", "aria-label": `Download ${name} as SVG` }),
    button("PNG", () => void save(svg, fileName, "png"), { class: "quiet", "aria-label": `Download ${name} as PNG` }))));
}

/** Moves labels apart so that none covers another. @param {number[]} positions @param {number} gap @param {number} [max] */
export function spread(positions, gap, max = Infinity) {
  const sorted = positions.map((y, index) => ({ y, index })).sort((a, b) => a.y - b.y);
  for (let index = 1; index < sorted.length; index++) sorted[index].y = Math.max(sorted[index].y, sorted[index - 1].y + gap);
  for (let index = sorted.length - 1, limit = max; index >= 0; index--) {
    sorted[index].y = Math.min(sorted[index].y, limit);
    limit = sorted[index].y - gap;
  }
  /** @type {number[]} */
  const placed = [];
  for (const { y, index } of sorted) placed[index] = y;
  return placed;
}
