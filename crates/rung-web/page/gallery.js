// The gallery of presets: cards, filters, and a plot of cache against rungs with the Pareto frontier.
import { button, h, labelled, s, select, show } from "./dom.js";
import { ask } from "./request.js";
import { ratioText, bytes, counts, plural, rungs, tokens } from "./format.js";
import { figure, frame, path } from "./chart.js";
import { legend, strip } from "./strip.js";
import { formatAddress } from "./state.js";
import { commandButton, flags } from "./command.js";

export const title = "Gallery";

const CONTEXTS = [4096, 32768, 131072, 262144, 1048576];
const SORTS = /** @type {Record<string, [string, (model: any) => any]>} */ ({
  name: ["Name", (model) => model.name],
  rungs: ["Rungs, most first", (model) => -(model.rungs ?? -1)],
  cache: ["KV cache, least first", (model) => model.cache_bytes ?? Infinity],
  ratio: ["Saving against all full", (model) => (model.cache_bytes ?? Infinity) / (model.all_full_bytes || 1)],
  layers: ["Layers, most first", (model) => -model.layers],
});
const SIZES = /** @type {[string, string][]} */ ([["", "any"], [String(1 << 28), "up to 256 MiB"], [String(1 << 30), "up to 1 GiB"], [String(4 * (1 << 30)), "up to 4 GiB"], [String(16 * (1 << 30)), "up to 16 GiB"]]);

/** @param {string} name */
const family = (name) => name.match(/^[a-z]+/)?.[0] ?? name;

/** @param {HTMLElement} root @param {Record<string, string>} values */
export async function render(root, values) {
  const state = { search: "", family: "", mixer: "", rungs: "", most: "", sort: "name", ...values, context: values.context ?? "131072" };
  let models = await ask({ ask: "gallery", context: Number(state.context) || 131072 });
  const list = h("div", { class: "cards" });
  const plot = h("div", {});
  const count = h("p", { class: "count", role: "status" });
  const comparedNames = new Set((values.compare ?? "").split(",").filter(Boolean));

  const update = async (/** @type {string} */ name, /** @type {string} */ value) => {
    /** @type {any} */ (state)[name] = value;
    if (name === "context") models = await ask({ ask: "gallery", context: Number(value) });
    const { context, sort, ...filters } = state;
    history.replaceState(null, "", formatAddress("gallery", { ...filters, sort: sort === "name" ? "" : sort, context: context === "131072" ? "" : context }));
    draw();
  };
  const families = [...new Set(models.map((/** @type {any} */ model) => family(model.name)))].sort();
  const mixers = [...new Set(models.flatMap((/** @type {any} */ model) => model.mixers))].sort();
  const maxRungs = Math.max(...models.map((/** @type {any} */ model) => model.rungs ?? 0));
  const rungChoices = /** @type {[string, string][]} */ ([["", "any"], ...[1, 2, 4, 8, 16, 32].filter((n) => n <= maxRungs).map((n) => [String(n), `${n} or more`])]);
  const filterForm = h("form", { class: "filters", role: "search", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
    labelled("Search", h("input", { type: "search", id: "search", value: state.search, placeholder: "name or stack", oninput: (/** @type {any} */ event) => void update("search", event.target.value) })),
    labelled("Family", select(state.family, [["", "all"], ...families.map((name) => /** @type {[string, string]} */ ([name, name]))], (value) => void update("family", value))),
    labelled("Mixer", select(state.mixer, [["", "any"], ...mixers.map((name) => /** @type {[string, string]} */ ([name, name]))], (value) => void update("mixer", value))),
    labelled("Rungs", select(state.rungs, rungChoices, (value) => void update("rungs", value))),
    labelled("KV cache and state", select(state.most, SIZES, (value) => void update("most", value))),
    labelled("Context", select(state.context, CONTEXTS.map((n) => /** @type {[number, string]} */ ([n, `${tokens(n)} tokens`])), (value) => void update("context", value))),
    labelled("Sort", select(state.sort, Object.entries(SORTS).map(([key, [text]]) => /** @type {[string, string]} */ ([key, text])), (value) => void update("sort", value), { id: "sort" })));

  const compareBar = h("p", { class: "compare-bar" });
  const drawBar = () => show(compareBar, comparedNames.size > 0 && [
    h("a", { class: "primary", href: formatAddress("compare", { models: [...comparedNames].map((name) => `preset:${name}`).join("|") }) }, `Compare ${plural(comparedNames.size, "model")}`),
    button("Clear", () => { comparedNames.clear(); draw(); }, { class: "quiet" })]);

  function draw() {
    const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (/** @type {any} */ model) =>
      words.every((word) => `${model.name} ${model.stack} ${model.source}`.toLowerCase().includes(word)) &&
      (!state.family || family(model.name) === state.family) &&
      (!state.mixer || model.mixers.includes(state.mixer)) &&
      (!state.rungs || (model.rungs ?? -1) >= Number(state.rungs)) &&
      (!state.most || (model.cache_bytes ?? Infinity) <= Number(state.most));
    const key = (SORTS[state.sort] ?? SORTS.name)[1];
    const visibleModels = models.filter(matches).sort((/** @type {any} */ a, /** @type {any} */ b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : a.name < b.name ? -1 : 1));
    count.textContent = `${visibleModels.length} of ${models.length} models, caches at ${tokens(Number(state.context))} tokens in bf16`;
    show(list, visibleModels.map((/** @type {any} */ model) => card(model, comparedNames, drawBar)));
    show(plot, figure(scatter(visibleModels, Number(state.context)), "cache-against-rungs",
      "Cache against rungs. The line is the Pareto frontier: no model has more rungs with less cache. Click a point to open the model."));
    drawBar();
  }
  draw();
  show(root,
    h("div", { class: "intro" },
      h("h1", {}, "What do public models compose in one pass, and what does it cost?"),
      h("p", {}, "A ", h("strong", {}, "rung"), " is a dependent look-up (a hop) that the layers can do in one forward pass, for large tables: full-attention layers, plus one if a recurrent layer comes before the second of them, minus one. ",
        h("a", { href: "#/1/learn" }, "How so?"))),
    h("section", { class: "panel", "aria-label": "Cache against rungs" }, plot),
    filterForm, h("div", { class: "row spread" }, count, compareBar, commandButton(() => `rung audit --all${flags({ context: state.context, sort: { rungs: "rungs", cache: "cache", layers: "layers" }[state.sort] ?? "name" })}`)),
    legend(models.map((/** @type {any} */ model) => model.strip)), list);
}

/** The card of a model. @param {any} model @param {Set<string>} comparedNames @param {() => void} onChange */
function card(model, comparedNames, onChange) {
  const box = h("input", { type: "checkbox", checked: comparedNames.has(model.name), "aria-label": `Compare ${model.name}`, onchange: () => {
    if (box.checked && comparedNames.size >= 4) box.checked = false;
    else if (box.checked) comparedNames.add(model.name);
    else comparedNames.delete(model.name);
    onChange();
  } });
  return h("article", { class: "card" },
    h("div", { class: "row spread" }, h("h3", {}, h("a", { href: formatAddress("designer", { model: `preset:${model.name}` }) }, model.name)), h("label", { class: "tick" }, box, " compare")),
    strip(model.strip),
    h("p", { class: "stack" }, model.stack ?? "layers not known"),
    h("dl", { class: "facts" },
      h("div", {}, h("dt", {}, "rungs"), h("dd", { class: "big" }, rungs(model.rungs, model.rungs_at_least))),
      h("div", {}, h("dt", {}, "cache"), h("dd", {}, bytes(model.cache_bytes))),
      h("div", {}, h("dt", {}, "vs. all full"), h("dd", {}, model.all_full_bytes === null || model.cache_bytes === null ? "unknown" : ratioText(model.cache_bytes, model.all_full_bytes))),
      h("div", {}, h("dt", {}, "weights"), h("dd", {}, model.parameters ? counts(model.parameters) : "not counted"))));
}

/** The Pareto frontier: models for which no other has at least as many rungs with less cache. @param {any[]} models */
export function frontier(models) {
  const sorted = models.filter((model) => model.rungs !== null && model.cache_bytes !== null)
    .sort((a, b) => b.rungs - a.rungs || a.cache_bytes - b.cache_bytes);
  let smallest = Infinity;
  return sorted.filter((model) => model.cache_bytes < smallest && ((smallest = model.cache_bytes), true)).reverse();
}

/** @param {any[]} models @param {number} context */
function scatter(models, context) {
  const known = models.filter((model) => model.rungs !== null && model.cache_bytes > 0);
  const sizes = known.map((model) => model.cache_bytes);
  const x = { from: -1, to: Math.max(4, ...known.map((model) => model.rungs)) + 3, label: "rungs: hops in one forward pass (at most)", ticks: undefined };
  const y = { log: true, from: Math.min(1 << 20, ...sizes) / 2, to: Math.max(1 << 30, ...sizes) * 2, label: `cache at ${tokens(context)} tokens`, format: bytes };
  const { svg, toX, toY, width } = frame(x, y, { title: `Cache against rungs of ${known.length} models`, width: 960, height: 400, left: 90, role: "group" });
  const onFrontier = frontier(known);
  // The frontier is drawn as a staircase.
  const corners = onFrontier.flatMap((model, index) => {
    const [px, py] = [toX(model.rungs), toY(model.cache_bytes)];
    return /** @type {[number, number][]} */ (index === 0 ? [[px, py]] : [[toX(onFrontier[index - 1].rungs), py], [px, py]]);
  });
  svg.append(s("path", { class: "frontier", d: path(corners) }));
  for (const model of known) {
    const isOnFrontier = onFrontier.includes(model);
    const [px, py] = [toX(model.rungs), toY(model.cache_bytes)];
    const label = `${model.name}: ${plural(model.rungs, "rung")}, ${bytes(model.cache_bytes)}`;
    const link = s("a", { href: formatAddress("designer", { model: `preset:${model.name}` }), class: isOnFrontier ? "dot best" : "dot", "aria-label": label },
      s("circle", { cx: px, cy: py, r: isOnFrontier ? 6 : 4.5 }), s("title", {}, label));
    svg.append(link);
  }
  // Only models on the frontier are named, and only where the names do not overlap.
  /** @type {{ x: number, y: number, width: number }[]} */
  const labels = [];
  for (const model of onFrontier) {
    const nameWidth = model.name.length * 6.6;
    const px = toX(model.rungs);
    const isLeft = px + 10 + nameWidth > width - 18;
    const label = { x: isLeft ? px - 10 - nameWidth : px + 10, y: toY(model.cache_bytes) + 14, width: nameWidth };
    if (labels.some((other) => Math.abs(other.y - label.y) < 13 && label.x < other.x + other.width && other.x < label.x + label.width)) continue;
    labels.push(label);
    svg.append(s("text", { class: "name", x: label.x, y: label.y }, model.name));
  }
  return svg;
}

