// Two to four models or designs side by side.
import { button, h, labelled, select, show } from "./dom.js";
import { ask } from "./engine.js";
import { against, bytes, commas, counts, rungs, tokens } from "./format.js";
import { legend, strip } from "./strip.js";
import { figure } from "./chart.js";
import { curveChart } from "./panels.js";
import { names } from "./model.js";
import { write } from "./state.js";
import { commandButton } from "./command.js";
import { quote } from "./format.js";

export const title = "Compare";
const MOST = 4;
const CONTEXTS = [4096, 32768, 131072, 262144, 1048576];

/** @param {string} text `preset:NAME`, `preset:NAME@EDITS` or `stack:TEXT` */
function parse(text) {
  const [kind, rest] = [text.slice(0, text.indexOf(":")), text.slice(text.indexOf(":") + 1)];
  if (kind === "stack") return { model: { stack: { text: rest } }, edits: "", name: rest, link: { model: text } };
  const [preset, edits = ""] = rest.split("@", 2);
  return { model: { preset }, edits, name: edits ? `${preset} with ${edits}` : preset, link: { model: `preset:${preset}`, edits } };
}

/** @param {HTMLElement} root @param {Record<string, string>} values */
export async function render(root, values) {
  const { presets } = await names();
  const context = Number(values.context) || 131072;
  const chosen = (values.models ?? "preset:qwen3.5-9b|preset:llama-3.1-8b|preset:gemma-3-27b").split("|").filter(Boolean).slice(0, MOST);
  const go = (/** @type {string[]} */ list, /** @type {number} */ at = context) => {
    sessionStorage.setItem("compare", list.join("|"));
    location.hash = write("compare", { models: list.join("|"), context: at === 131072 ? "" : at });
  };
  const designs = await Promise.all(chosen.map(async (text) => {
    const one = parse(text);
    try {
      return { text, ...one, problem: "", answer: await ask({ ask: "design", model: one.model, edits: one.edits, context, certify: 0 }) };
    } catch (error) {
      return { text, ...one, problem: error instanceof Error ? error.message : String(error), answer: null };
    }
  }));
  const shown = designs.filter((one) => one.answer);
  const best = (/** @type {number[]} */ all, /** @type {boolean} */ more) => (more ? Math.max(...all) : Math.min(...all));
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
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, ""), shown.map((one) => h("th", { scope: "col" }, h("a", { href: write("designer", { ...one.link }) }, one.name), " ",
      button("✕", () => go(chosen.filter((other) => other !== one.text)), { class: "quiet", "aria-label": `Remove ${one.name}` }))))),
    h("tbody", {},
      h("tr", {}, h("th", { scope: "row" }, "Layers, first to last"), shown.map((one) => h("td", {}, strip(one.answer.after.strip)))),
      rows.map(([text, of, as, more]) => {
        const numbers = shown.map((one) => of(one.answer.after, one.answer));
        const known = /** @type {number[]} */ (numbers.filter((n) => n !== null && n !== undefined));
        return h("tr", {}, h("th", { scope: "row" }, text), numbers.map((number, index) => {
          const wins = more !== null && known.length > 1 && number === best(known, more) && known.some((other) => other !== number);
          return h("td", { class: wins ? "better" : "" }, number === null || number === undefined ? "unknown" : as(number, shown[index].answer.after), wins ? " ★" : "");
        }));
      }),
      h("tr", {}, h("th", { scope: "row" }, "Against all full"), shown.map(({ answer: { after } }) => h("td", {}, after.all_full && after.cache_bytes !== null ? against(after.cache_bytes, after.all_full.cache.cache_bytes) : "unknown"))),
      h("tr", {}, h("th", { scope: "row" }, "Why"), shown.map((one) => h("td", { class: "reason" }, one.answer.reason ?? "not all layers are known"))))));
  const lines = shown.filter((one) => one.answer.after.cache_bytes !== null).map((one) => ({ name: one.name.length > 15 ? `${one.name.slice(0, 14)}…` : one.name, curve: one.answer.curve.map((/** @type {any} */ point) => [point.context, point.after]) }));
  const add = chosen.length < MOST && labelled("Add a model", select("", [["", "choose …"], ...presets.filter((/** @type {string} */ name) => !chosen.includes(`preset:${name}`)).map((/** @type {string} */ name) => [name, name])], (name) => name && go([...chosen, `preset:${name}`]), { id: "add" }));
  show(root,
    h("h1", {}, "Compare"),
    h("p", { class: "muted" }, "Two to four models or designs; a design is added from the designer. ★ marks the best of a row."),
    designs.filter((one) => one.problem).map((one) => h("p", { class: "problem", role: "alert" }, `${one.name}: ${one.problem}`)),
    h("div", { class: "row filters" }, add, labelled("Context", select(context, CONTEXTS.map((n) => /** @type {[number, string]} */ ([n, `${tokens(n)} tokens`])), (value) => go(chosen, Number(value)))),
      commandButton(() => `rung audit ${shown.map((one) => ("preset" in one.model ? quote(/** @type {string} */ (one.model.preset)) : "")).filter(Boolean).join(" ")} --compare --context ${context}`)),
    legend(shown.map((one) => one.answer.after.strip)),
    h("section", { class: "panel" }, table),
    lines.length > 0 && h("section", { class: "panel", "aria-label": "Cache against context" }, h("h2", {}, "Cache against context"), figure(curveChart(lines, context), "comparison", "KV cache, windows and recurrent state of one request. Dashed red: memory of GPUs.")));
}
