// Formats numbers as the program's reports do.

// Created once, because creating a formatter is slow.
const THOUSANDS = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** A whole number with commas between thousands. @param {number | null | undefined} number */
export function commas(number) {
  return number === null || number === undefined ? "unknown" : THOUSANDS.format(Math.round(number));
}

/** A number with three digits and the largest unit that fits. @param {number} value @param {number} base @param {string[]} units */
function withUnit(value, base, units) {
  let unit = 0;
  while (Math.abs(value) >= base && unit + 1 < units.length) {
    value /= base;
    unit += 1;
  }
  const digits = unit === 0 || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return `${value.toFixed(digits)}${units[unit]}`;
}

/** Bytes with a binary unit. @param {number | null | undefined} number */
export function bytes(number) {
  if (number === null || number === undefined) return "unknown";
  return withUnit(number, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"]);
}

/** Counts with a decimal prefix. @param {number | null | undefined} number */
export function counts(number) {
  return number === null || number === undefined ? "unknown" : withUnit(number, 1000, ["", "K", "M", "G", "T", "P", "E"]);
}

/** Tokens with a binary prefix, as in 128k. @param {number} number */
export function tokens(number) {
  if (number >= 1 << 20 && number % (1 << 20) === 0) return `${number / (1 << 20)}M`;
  if (number >= 1024 && number % 1024 === 0) return `${number / 1024}k`;
  return commas(number);
}

/** Bytes of this model relative to the model with full attention in every layer, such as "4.0× less". @param {number} value @param {number} allFull */
export function ratioText(value, allFull) {
  if (value === allFull) return "equal";
  if (value === 0) return "only in the all-full model";
  if (allFull === 0) return "only in this model";
  return value < allFull ? `${(allFull / value).toFixed(1)}× less` : `${(value / allFull).toFixed(1)}× more`;
}

/** A change with its sign. @param {number} change @param {(n: number) => string} [format] */
export function signed(change, format = commas) {
  return change === 0 ? "±0" : `${change > 0 ? "+" : "−"}${format(Math.abs(change))}`;
}

/** "1 hop", "2 hops". @param {number} count @param {string} noun */
export function plural(count, noun) {
  return `${commas(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** Two to a power as text: the number, or `2^x` from 2^20 on. @param {number} log2 */
export function power(log2) {
  if (log2 < 20) return commas(2 ** log2);
  return `2^${log2.toFixed(log2 < 100 ? 1 : 0)}`;
}

/** Rungs: one number, or a range where only bounds are known. @param {number | null} atMost @param {number | null} atLeast */
export function rungs(atMost, atLeast) {
  if (atMost === null || atMost === undefined) return "?";
  return atLeast === null || atLeast === undefined || atLeast === atMost ? String(atMost) : `${atLeast}–${atMost}`;
}

/** Quotes a word for a POSIX shell if necessary. @param {string | number} word */
export function quote(word) {
  const text = String(word);
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
