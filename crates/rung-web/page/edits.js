// Edits of a design, in the grammar of `rung audit --what-if`: one pattern for all layers, then single layers, then sizes.

const KIND_OF_LETTER = /** @type {Record<string, string>} */ ({ F: "full", r: "recurrent", W: "window", ".": "none" });
const LETTER_OF_KIND = /** @type {Record<string, string>} */ ({ full: "F", recurrent: "r", window: "W", none: "." });

export class Edits {
  /** @param {string} base layer letters of the model without edits */
  constructor(base) {
    this.base = base;
    /** The pattern for all layers: `every=4`, `ratio=5:1` or `all=full`; empty for none. */
    this.pattern = "";
    /** @type {Map<number, string>} */
    this.layers = new Map();
    /** @type {Map<string, number>} */
    this.sizes = new Map();
  }

  /** Parses edits; the Rust code reports those that are not understood. @param {string} text @param {string} base */
  static parse(text, base) {
    const edits = new Edits(base);
    for (const edit of text.split(",").map((part) => part.trim()).filter(Boolean)) {
      const [key, value = ""] = edit.split("=", 2);
      const range = key.match(/^(\d+)(?:-(\d+))?$/);
      if (range) {
        const [from, to] = [Number(range[1]), Number(range[2] ?? range[1])];
        for (let index = from; index <= Math.min(to, base.length - 1); index++) edits.layers.set(index, value);
      } else if (key === "first" || key === "last") edits.set(key === "first" ? edits.firstMixingLayer() : edits.lastMixingLayer(), value);
      else if (["heads", "kv-heads", "head-dim"].includes(key)) edits.sizes.set(key, Number(value));
      else edits.setPattern(edit);
    }
    return edits;
  }

  firstMixingLayer() {
    return [...this.base].findIndex((letter) => letter !== ".");
  }

  lastMixingLayer() {
    return [...this.base].findLastIndex((letter) => letter !== ".");
  }

  /** The kind that a layer with this letter gets when it is flipped between full and not full. @param {string} letter */
  flippedKind(letter) {
    if (!["F", "S", "P"].includes(letter)) return "full";
    return this.base.includes("r") || !this.base.includes("W") ? "recurrent" : "window";
  }

  /** The letter of a kind; for `original` the letter that the model has there. @param {number} index @param {string} kind */
  letter(index, kind) {
    return kind === "original" ? this.base[index] : LETTER_OF_KIND[kind];
  }

  /** @param {number} index @param {string} kind */
  set(index, kind) {
    if (index < 0) return;
    if (kind === "original" && this.pattern && KIND_OF_LETTER[this.base[index]]) this.layers.set(index, KIND_OF_LETTER[this.base[index]]);
    else if (kind === "original" || (!this.pattern && LETTER_OF_KIND[kind] === this.base[index])) this.layers.delete(index);
    else this.layers.set(index, kind);
  }

  /** @param {number} from @param {number} to @param {string} kind */
  paint(from, to, kind) {
    for (let index = from; index <= to; index++) this.set(index, kind);
  }

  /** Sets the pattern for all layers, which replaces earlier edits of single layers. @param {string} edit */
  setPattern(edit) {
    this.pattern = edit;
    this.layers.clear();
  }

  /** @param {string} key @param {number} value */
  resize(key, value) {
    this.sizes.set(key, value);
  }

  clear() {
    this.pattern = "";
    this.layers.clear();
    this.sizes.clear();
  }

  /** The edits as text; adjacent layers of one kind become a range. */
  toString() {
    const parts = this.pattern ? [this.pattern] : [];
    const sorted = [...this.layers].sort((a, b) => a[0] - b[0]);
    for (let start = 0; start < sorted.length;) {
      let end = start;
      while (end + 1 < sorted.length && sorted[end + 1][0] === sorted[end][0] + 1 && sorted[end + 1][1] === sorted[start][1]) end++;
      const [from, to] = [sorted[start][0], sorted[end][0]];
      parts.push(`${from === to ? from : `${from}-${to}`}=${sorted[start][1]}`);
      start = end + 1;
    }
    for (const [key, value] of this.sizes) parts.push(`${key}=${value}`);
    return parts.join(",");
  }
}
