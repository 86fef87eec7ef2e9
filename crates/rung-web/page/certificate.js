// Certificates: search for one, show its numbers, download it, check one.
import { button, download, h, labelled, show } from "./dom.js";
import { Searcher, Stopped, ask } from "./request.js";
import { commas, plural, power } from "./format.js";
import { commandLine, sizeFlags } from "./command.js";
import { evidence } from "./panels.js";
import { dropTarget } from "./model.js";
import { quote } from "./format.js";
import { formatAddress } from "./state.js";

export const title = "Certificate";

/** Descriptions of a certificate's fields. */
const FIELD_MEANINGS = /** @type {Record<string, string>} */ ({
  theorem: "which theorem of the proof it is a case of",
  case: "1: one full layer fewer than hops; 0: as many, and nothing recurrent before the second",
  hops: "dependent look-ups", message_bits: "bits a token can receive in one full layer", state_bits: "bits of recurrent state in each block between full layers",
  beside_bits: "bits of mixers in parallel with the first full layer", m: "entries of the first table", n: "growth of each further table",
  x: "lists of arguments that stay indistinguishable", sigma: "distinct pairs that a draw must reach", kappa: "classes of sparse pairs",
  varying: "entries that vary", live: "rows that are not constant", freeze: "tables that are fixed", cell: "size of a cell", group: "cells in a group",
  embedding: "a smaller instance inside these tables", tokens_per: "tokens of an entry, of z0 and of w",
});

/** An integer as text; if it is long, its first digits and its power of two. @param {string} text */
function shortInteger(text) {
  return text.length <= 24 ? text : `${text.slice(0, 12)}… (${text.length} digits, ${power((text.length - 1) * Math.log2(10) + Math.log2(Number(`${text[0]}.${text.slice(1, 15)}`)))})`;
}

/** A JSON value as readable text. @param {any} value @returns {string} */
function readable(value) {
  if (Array.isArray(value)) return value.map(readable).join(", ");
  if (value && typeof value === "object") return Object.entries(value).map(([name, inner]) => `${name} ${readable(inner)}`).join(", ");
  return typeof value === "string" && /^\d+$/.test(value) ? shortInteger(value) : String(value);
}

/** The table of a certificate's numbers. @param {any} certificate */
function numberTable(certificate) {
  return h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "name"), h("th", { scope: "col" }, "number"), h("th", { scope: "col" }, "what it is"))),
    h("tbody", {}, Object.entries(certificate).filter(([name]) => !["stack", "conventions"].includes(name)).map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, name)), h("td", {}, readable(value)), h("td", { class: "muted" }, FIELD_MEANINGS[name] ?? "")))));
}

/** A number of bits with its fraction; if it is long, its power of two. @param {string | null} text */
function bits(text) {
  if (text === null) return "without limit";
  const [integer, fraction] = text.split(".");
  return integer.length <= 15 ? `${commas(Number(integer))}.${fraction}` : shortInteger(integer);
}

/** The table of the inequalities that the checker compared. @param {any} answer */
function inequalityTable(answer) {
  if (!answer.inequalities?.length) return null;
  const head = ["Inequality", "left side", "", "right side", ""];
  return [h("h3", {}, "Inequalities"), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Inequalities" },
    h("table", { class: "inequalities" }, h("thead", {}, h("tr", {}, head.map((text) => h(text ? "th" : "td", text ? { scope: "col" } : {}, text)))),
      h("tbody", {}, answer.inequalities.map((/** @type {any} */ inequality) => h("tr", { class: inequality.holds ? "" : "worse" }, h("th", { scope: "row" }, h("code", {}, `${inequality.left} ${inequality.relation} ${inequality.right}`)),
        h("td", { class: "number" }, bits(inequality.left_bits)), h("td", {}, inequality.relation), h("td", { class: "number" }, bits(inequality.right_bits)), h("td", {}, inequality.holds ? "✓ holds" : "✗ fails")))))),
  h("p", { class: "muted" }, "In bits, exact integers scaled by 2^80 and rounded against the claim. Letters as in docs/proof.md. ",
    answer.accepted && answer.theorem === "entropy" ? "One of (i), (ii), (iii) is enough." : "")];
}

/** @param {HTMLElement} root @param {Record<string, string>} values */
export async function render(root, values) {
  const search = new Searcher();
  const text = h("input", { type: "text", id: "stack", value: values.stack ?? "linear*3 full linear*3", spellcheck: "false" });
  const number = (/** @type {string} */ name, /** @type {number} */ initial, /** @type {number} */ max) => h("input", { type: "number", id: name, min: 1, max, value: values[name] ?? initial });
  const inputs = { hops: number("hops", 2, 8), heads: number("heads", 16, 4096), head_dim: number("head_dim", 128, 65536), bits: number("bits", 16, 64) };
  const result = h("div", { "aria-live": "polite" });
  const findButton = button("Find a certificate", () => void run(), { class: "primary", id: "find" });

  async function run() {
    search.stop();
    const sizes = { heads: Number(inputs.heads.value), head_dim: Number(inputs.head_dim.value), bits: Number(inputs.bits.value) };
    const hops = Number(inputs.hops.value);
    history.replaceState(null, "", formatAddress("certificate", { stack: text.value, hops, ...sizes }));
    const started = performance.now();
    show(result, h("p", { class: "muted" }, `Searching for ${plural(hops, "hop")} … `, button("Stop", () => search.stop(), { class: "quiet" })));
    try {
      const answer = await search.ask({ ask: "bound", stack: { text: text.value, ...sizes }, hops });
      const seconds = ((performance.now() - started) / 1000).toFixed(1);
      show(result, await searchResult(answer, `rung bound ${quote(text.value)} --hops ${hops}${sizeFlags({ text: "", ...sizes })}`, seconds));
    } catch (error) {
      show(result, error instanceof Stopped ? h("p", {}, "Stopped.") : h("p", { class: "problem", role: "alert" }, error instanceof Error ? error.message : String(error)));
    }
  }

  const checkResult = h("div", { id: "checked", "aria-live": "polite" });
  const area = h("textarea", { rows: 6, id: "certificate", spellcheck: "false", "aria-label": "Text of a certificate" });
  /** @param {string} content */
  async function check(content) {
    area.value = content.length < 200000 ? content : "";
    try {
      const answer = await ask({ ask: "check", text: content, explain: true });
      show(checkResult, verdict(answer), inequalityTable(answer));
    } catch (error) {
      show(checkResult, h("p", { class: "problem", role: "alert" }, error instanceof Error ? error.message : String(error)));
    }
  }
  const file = h("input", { type: "file", "aria-label": "A certificate file", onchange: async () => file.files?.[0] && check(await file.files[0].slice(0, 2 << 20).text()) });
  const removeDropTarget = dropTarget(async (dropped) => check(await dropped.slice(0, 2 << 20).text()));

  show(root,
    h("h1", {}, "Certificates"),
    h("p", { class: "intro" }, "From what prompt length on is it proved that no weights of a layout can compose so many functions in one forward pass? A search proposes numbers; a small checker with exact integers accepts or rejects them. Both run here."),
    h("div", { class: "panels" },
      h("section", { class: "panel", "aria-label": "Find" }, h("h2", {}, "Find"), h("form", { onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); void run(); } },
        labelled("Stack", text), h("div", { class: "row sizes" }, labelled("Hops", inputs.hops), labelled("Heads", inputs.heads), labelled("Head width", inputs.head_dim), labelled("Bits per number", inputs.bits)), h("p", {}, findButton)), result),
      h("section", { class: "panel", "aria-label": "Check" }, h("h2", {}, "Check"), h("p", { class: "muted" }, "Paste a certificate, or drop its file anywhere on this page."), area,
        h("div", { class: "row" }, button("Check", () => void check(area.value), { class: "primary", id: "check" }), h("label", { class: "file" }, "or a file: ", file)), checkResult)));
  if (values.stack) void run();

  /** The result of a search: the claim, the certificate and its check. @param {any} answer @param {string} command @param {string} seconds */
  async function searchResult(answer, command, seconds) {
    const head = h("p", { class: "verdict" }, h("strong", {}, answer.verdict), ` — ${answer.reason}`);
    if (!answer.certificate) return [head, commandLine(command)];
    const content = `${JSON.stringify(answer.certificate, null, 2)}\n`;
    return [head,
      h("p", {}, "from ", h("strong", {}, `${shortInteger(answer.tokens).replace(/^\d+$/, (/** @type {string} */ digits) => commas(Number(digits)))} tokens`), ` = ${power(answer.log2_tokens)} `, evidence("proved"), h("span", { class: "muted" }, ` found in ${seconds} s`)),
      answer.papers_log2_tokens !== null && h("p", { class: "muted" }, `For comparison, the constants of the published proof give ${power(answer.papers_log2_tokens)} tokens.`),
      answer.trivial && h("p", {}, "Trivial: one message cannot even carry an answer."),
      inequalityTable(await ask({ ask: "check", text: content, explain: true })), h("h3", {}, "Numbers"), numberTable(answer.certificate),
      h("div", { class: "row" }, button("Download", () => download("certificate.json", new Blob([content], { type: "application/json" })), { id: "download" }), button("Check it", () => void check(content), { id: "check-found" })),
      commandLine(command)];
  }

  /** The checker's verdict on a certificate. @param {any} answer */
  function verdict(answer) {
    if (!answer.accepted) return h("p", { class: "problem", role: "alert" }, h("strong", {}, answer.status), `: ${answer.reason}`);
    return h("div", { class: "accepted" }, h("p", {}, h("strong", {}, "✓ accepted"), `: ${plural(answer.hops, "hop")} ${answer.hops === 1 ? "is" : "are"} out of reach for prompts of ${shortInteger(answer.tokens).replace(/^\d+$/, (/** @type {string} */ digits) => commas(Number(digits)))} tokens (${power(answer.log2_tokens)}), by theorem `, h("code", {}, answer.theorem)),
      h("p", { class: "muted" }, answer.stack_verified ? "The bits of the stack that it names were counted again and fit." : "It names no stack, or not how its bits were counted: that part is not verified."));
  }

  return () => {
    removeDropTarget();
    search.stop();
  };
}
