// Two to four models or designs side by side.
import { button, h, labelled, select, show } from "./dom.js";
import { ask } from "./request.js";
import { ratioText, bytes, commas, counts, rungs, tokens } from "./format.js";
import { legend, strip } from "./strip.js";
import { figure } from "./chart.js";
import { curveChart } from "./panels.js";
import { names } from "./model.js";
import { formatAddress } from "./state.js";
import { commandButton } from "./command.js";
import { quote } from "./format.js";

export const title = "Compare";
const MAX_MODELS = 4;
const CONTEXTS = [4096, 32768, 131072, 262144, 1048576];

/** Parses a model of the link. @param {string} text `preset:NAME`, `preset:NAME@EDITS` or `stack:TEXT` */
function parse(text) {
  const [kind, name] = [text.slice(0, text.indexOf(":")), text.slice(text.indexOf(":") + 1)];
  if (kind === "stack") return { model: { stack: { text: name } }, edits: "", name, link: { model: text } };
  const [preset, edits = ""] = name.split("@", 2);
  return { model: { preset }, edits, name: edits ? `${preset} with ${edits}` : preset, link: { model: `preset:${preset}`, edits } };
}

/** @param {HTMLElement} root @param {Record<string, string>} values */
export async function render(root, values) {
  const { presets } = await names();
  const context = Number(values.context) || 131072;
  const modelSpecs = (values.models ?? "preset:qwen3.5-9b|preset:llama-3.1-8b|preset:gemma-3-27b").split("|").filter(Boolean).slice(0, MAX_MODELS);
  const navigate = (/** @type {string[]} */ list, /** @type {number} */ newContext = context) => {
    sessionStorage.setItem("compare", list.join("|"));
    location.hash = formatAddress("compare", { models: list.join("|"), context: newContext === 131072 ? "" : newContext });
  };
  const designs = await Promise.all(modelSpecs.map(async (text) => {
    const parsed = parse(text);
    try {
      return { text, ...parsed, problem: "", answer: await ask({ ask: "design", model: parsed.model, edits: parsed.edits, context, certify: 0 }) };
    } catch (error) {
      return { text, ...parsed, problem: error instanceof Error ? error.message : String(error), answer: null };
    }
  }));
  const answered = designs.filter((design) => design.answer);
  const best = (/** @type {number[]} */ numbers, /** @type {boolean} */ largest) => (largest ? Math.max(...numbers) : Math.min(...numbers));
  /** @type {[string, (after: any, answer: any) => number | null, (n: number, after: any) => string, boolean | null][]} */
  const rows = [
    ["Rungs", (after) => after.rungs, (n, after) => rungs(n, after.rungs_at_least), true],
    ["Full layers", (after) => after.full_layers, commas, null],
    ["Layers", (after) => after.layers.length, commas, null],
    ["KV cache per token", (after) => after.bytes_per_token, bytes, false],
    ["Windows", (after) => after.window_bytes, bytes, false],
    ["Recurrent state", (after) => after.state_bytes, bytes, false],
    [`All caches at ${tokens(context)}`, (after) => after.cache_bytes, bytes, false],
    ["Prefill FLOPs per token (mixers)", (after) => after.mixers?.prefill_flops_per_token ?? null, counts, false],
    ["Decode FLOPs per token (mixers)", (after) => after.mixers?.decode_flops_per_token ?? null, counts, false],
    ["Weights", (_, answer) => answer.parameters, counts, null],
  ];
  const table = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Comparison" }, h("table", { class: "comparison" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, ""), answered.map((design) => h("th", { scope: "col" }, h("a", { href: formatAddress("designer", { ...design.link }) }, design.name), " ",
      button("✕", () => navigate(modelSpecs.filter((other) => other !== design.text)), { class: "quiet", "aria-label": `Remove ${design.name}` }))))),
    h("tbody", {},
      h("tr", {}, h("th", { scope: "row" }, "Layers, first to last"), answered.map((design) => h("td", {}, strip(design.answer.after.strip)))),
      rows.map(([text, read, format, largestIsBest]) => {
        const numbers = answered.map((design) => read(design.answer.after, design.answer));
        const known = /** @type {number[]} */ (numbers.filter((n) => n !== null && n !== undefined));
        return h("tr", {}, h("th", { scope: "row" }, text), numbers.map((number, index) => {
          const isBest = largestIsBest !== null && known.length > 1 && number === best(known, largestIsBest) && known.some((other) => other !== number);
          return h("td", { class: isBest ? "better" : "" }, number === null || number === undefined ? "unknown" : format(number, answered[index].answer.after), isBest ? " ★" : "");
        }));
      }),
      h("tr", {}, h("th", { scope: "row" }, "Against all full"), answered.map(({ answer: { after } }) => h("td", {}, after.all_full && after.cache_bytes !== null ? ratioText(after.cache_bytes, after.all_full.cache.cache_bytes) : "unknown"))),
      h("tr", {}, h("th", { scope: "row" }, "Why"), answered.map((design) => h("td", { class: "reason" }, design.answer.reason ?? "not all layers are known"))))));
  const lines = answered.filter((design) => design.answer.after.cache_bytes !== null).map((design) => ({ name: design.name.length > 15 ? `${design.name.slice(0, 14)}…` : design.name, curve: design.answer.curve.map((/** @type {any} */ point) => [point.context, point.after]) }));
  const add = modelSpecs.length < MAX_MODELS && labelled("Add a model", select("", [["", "choose …"], ...presets.filter((/** @type {string} */ name) => !modelSpecs.includes(`preset:${name}`)).map((/** @type {string} */ name) => [name, name])], (name) => name && navigate([...modelSpecs, `preset:${name}`]), { id: "add" }));
  show(root,
    h("h1", {}, "Compare"),
    h("p", { class: "muted" }, "Two to four models or designs; a design is added from the designer. ★ marks the best of a row."),
    designs.filter((design) => design.problem).map((design) => h("p", { class: "problem", role: "alert" }, `${design.name}: ${design.problem}`)),
    h("div", { class: "row filters" }, add, labelled("Context", select(context, CONTEXTS.map((n) => /** @type {[number, string]} */ ([n, `${tokens(n)} tokens`])), (value) => navigate(modelSpecs, Number(value)))),
      commandButton(() => `rung audit ${answered.map((design) => ("preset" in design.model ? quote(/** @type {string} */ (design.model.preset)) : "")).filter(Boolean).join(" ")} --compare --context ${context}`)),
    legend(answered.map((design) => design.answer.after.strip)),
    h("section", { class: "panel" }, table),
    lines.length > 0 && h("section", { class: "panel", "aria-label": "Cache against context" }, h("h2", {}, "Cache against context"), figure(curveChart(lines, context), "comparison", "KV cache, windows and recurrent state of one request. Dashed red: memory of GPUs.")));
}
