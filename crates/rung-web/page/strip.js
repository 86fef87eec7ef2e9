// The strip: one cell per layer, with a letter and a colour for its kind.
import { h } from "./dom.js";

/** The meaning of each letter of a strip. @type {Record<string, string>} */
export const KINDS = {
  F: "full attention",
  S: "sparse attention over the whole past",
  W: "window",
  r: "recurrent",
  P: "full attention in parallel with a recurrence",
  p: "window in parallel with a recurrence",
  ".": "no mixer",
  "?": "unknown",
};

/** The CSS class of a cell. @param {string} letter */
export function cellClass(letter) {
  return { F: "full", S: "sparse", W: "window", r: "recurrent", P: "full-parallel", p: "window-parallel", ".": "none", "?": "unknown" }[letter] ?? "unknown";
}

/** The number of layers of each kind, for screen readers. @param {string} strip */
export function describeStrip(strip) {
  const counts = new Map();
  for (const letter of strip) counts.set(letter, (counts.get(letter) ?? 0) + 1);
  const parts = [...counts].sort((a, b) => b[1] - a[1]).map(([letter, count]) => `${count} ${KINDS[letter] ?? letter}`);
  return `${strip.length} layers: ${parts.join(", ")}`;
}

/** A strip that cannot be edited. @param {string} strip */
export function strip(strip) {
  const cells = [...strip].map((letter) => h("i", { class: `cell ${cellClass(letter)}` }, letter));
  return h("span", { class: "strip", role: "img", "aria-label": describeStrip(strip) }, cells);
}

/** The legend for the letters of some strips. @param {string[]} strips */
export function legend(strips) {
  const letters = [...new Set(strips.join(""))].filter((letter) => letter in KINDS);
  const order = Object.keys(KINDS);
  letters.sort((a, b) => order.indexOf(a) - order.indexOf(b));
  return h("ul", { class: "legend" }, letters.map((letter) => h("li", {}, h("i", { class: `cell ${cellClass(letter)}`, "aria-hidden": "true" }, letter), ` ${KINDS[letter]}`)));
}

/**
 * A strip that can be edited: click or drag to paint, or use arrow keys and Enter. `paint` gets the painted range and the letter of the
 * layer where painting began (`first`), which decides what is painted; `preview` is the letter that a layer would get.
 * @param {{ strip: string, base: string, titles: string[], paint: (from: number, to: number, first: string) => void, preview: (index: number, first: string) => string }} options
 */
export function editor({ strip, base, titles, paint, preview }) {
  let letters = [...strip];
  const firstLetter = () => letters[start] ?? "F";
  let start = -1;
  let end = -1;
  let focus = 0;
  const cells = letters.map((letter, index) =>
    h("button", {
      type: "button",
      class: classes(letter, index),
      "data-index": index,
      tabindex: index === 0 ? 0 : -1,
      title: titles[index],
      "aria-label": label(index),
    }, letter));

  /** CSS classes of a cell. @param {string} letter @param {number} index */
  function classes(letter, index) {
    return `cell ${cellClass(letter)}${letter === base[index] ? "" : " changed"}`;
  }

  /** @param {number} index */
  function label(index) {
    const changed = letters[index] === base[index] ? "" : `, was ${KINDS[base[index]] ?? "unknown"}`;
    return `Layer ${index}: ${KINDS[letters[index]] ?? "unknown"}${changed}`;
  }

  /** Shows the letters that painting would give. */
  function showPreview() {
    const [from, to] = [Math.min(start, end), Math.max(start, end)];
    cells.forEach((cell, index) => {
      const isPainted = start >= 0 && index >= from && index <= to;
      const letter = isPainted ? preview(index, firstLetter()) : letters[index];
      cell.className = `cell ${cellClass(letter)}${isPainted ? " painting" : ""}${letter === base[index] ? "" : " changed"}`;
      cell.textContent = letter;
    });
  }

  /** @param {any} event */
  function indexAt(event) {
    const target = document.elementFromPoint(event.clientX, event.clientY)?.closest(".cell");
    return target && root.contains(target) ? Number(target.getAttribute("data-index")) : -1;
  }

  function finish() {
    if (start < 0) return;
    const [from, to] = [Math.min(start, end), Math.max(start, end)];
    const letter = firstLetter();
    start = -1;
    paint(from, to, letter);
  }

  const root = h("div", {
    class: "strip editor",
    role: "group",
    "aria-label": "Layers, first to last. Arrow keys move, Enter changes a layer, Shift with an arrow paints.",
    onpointerdown: (/** @type {any} */ event) => {
      const index = indexAt(event);
      if (index < 0 || event.button !== 0) return;
      event.preventDefault();
      cells[index].focus();
      root.setPointerCapture(event.pointerId);
      start = end = index;
      showPreview();
    },
    onpointermove: (/** @type {any} */ event) => {
      if (start < 0) return;
      const index = indexAt(event);
      if (index >= 0 && index !== end) {
        end = index;
        showPreview();
      }
    },
    onpointerup: finish,
    onpointercancel: () => { start = -1; showPreview(); },
    onkeydown: (/** @type {any} */ event) => {
      const index = Number(event.target.getAttribute?.("data-index"));
      const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: cells.length - 1 }[/** @type {string} */ (event.key)];
      if (to !== undefined) {
        event.preventDefault();
        const next = Math.max(0, Math.min(cells.length - 1, to));
        if (event.shiftKey) paint(Math.min(index, next), Math.max(index, next), letters[index]);
        else move(next);
      } else if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        paint(index, index, letters[index]);
      }
    },
  }, cells);

  /** @param {number} index */
  function move(index) {
    cells[focus].tabIndex = -1;
    focus = index;
    cells[focus].tabIndex = 0;
    cells[focus].focus();
  }

  /** Shows another design with as many layers; only cells that differ are changed. @param {{ strip: string, base: string, titles: string[] }} next */
  function update(next) {
    const before = { letters, base, titles };
    [letters, base, titles] = [[...next.strip], next.base, next.titles];
    cells.forEach((cell, index) => {
      const isSame = before.letters[index] === letters[index] && before.base[index] === base[index];
      if (!isSame || cell.className !== classes(letters[index], index)) {
        cell.className = classes(letters[index], index);
        cell.textContent = letters[index];
        cell.setAttribute("aria-label", label(index));
      }
      if (before.titles[index] !== titles[index]) cell.title = titles[index];
    });
  }

  return { root, length: cells.length, update };
}
