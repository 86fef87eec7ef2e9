// The designer: change layers and sizes, and see at once what the stack composes and costs.
import { button, copy, h, labelled, select, show } from "./dom.js";
import { Searcher, ask } from "./engine.js";
import { tokens } from "./format.js";
import { editor, legend } from "./strip.js";
import { modelFromLink, modelName, modelToLink, write } from "./state.js";
import { auditCommand, commandButton } from "./command.js";
import { chooser, dropTarget, fileOf, names, readFile } from "./model.js";
import { Edits } from "./edits.js";
import { curvePanel, differencePanel, hopMapPanel, readingPanel, rungsPanel, workPanel } from "./panels.js";
import { planner } from "./planner.js";
/** @typedef {import("./state.js").Model} Model */

export const title = "Designer";

const DTYPES = ["bf16", "fp16", "fp32", "fp8", "int8", "int4"];
/** The contexts of the slider, as powers of two. */
const CONTEXTS = { from: 10, to: 22 };

/** @param {HTMLElement} root @param {Record<string, string>} values */
export async function render(root, values) {
  const known = await names();
  /** @type {Model} */
  let model = (await modelFromLink(values)) ?? { preset: "qwen3.5-9b" };
  const storage = { context: Number(values.context) || 131072, kv_dtype: values.kv_dtype ?? "bf16", state_dtype: values.state_dtype ?? "" };
  /** @type {any} */
  let base = await question("");
  let edits = Edits.parse(values.edits ?? "", base.before.strip);
  /** Designs so far, and which of them is shown. */
  let past = [edits.toString()];
  let at = 0;
  let brush = "flip";
  const search = new Searcher();
  const plan = planner(known, values, () => void address());

  const name = h("h1", {});
  const source = h("p", { class: "source" });
  const stripBox = h("div", { class: "strip-box" });
  const sizes = h("div", { class: "row sizes" });
  const panels = h("div", { class: "panels" });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const undo = button("Undo", () => void step(-1), { id: "undo", title: "Ctrl+Z" });
  const redo = button("Redo", () => void step(1), { id: "redo", title: "Ctrl+Shift+Z" });

  /** @param {string} text */
  function question(text) {
    return ask({ ask: "design", model, edits: text, context: storage.context, kv_dtype: storage.kv_dtype, state_dtype: storage.state_dtype || null, certify: 0 }, fileOf(model));
  }

  async function address() {
    const link = await modelToLink(model);
    // Too large for a link: then it holds the stack that was read, with every number.
    const inLink = link ?? (latest?.explicit_stack ? { model: `stack:${latest.explicit_stack}`, width: latest.after.width ?? undefined } : {});
    const { context, kv_dtype, state_dtype } = storage;
    history.replaceState(null, "", write("designer", {
      ...inLink, edits: link ? edits.toString() : "", context: context === 131072 ? "" : context,
      kv_dtype: kv_dtype === "bf16" ? "" : kv_dtype, state_dtype, ...plan.values(),
    }));
  }

  /** @type {any} */
  let latest = null;
  async function draw() {
    const text = edits.toString();
    const answer = await question(text).catch((error) => ({ error }));
    if (answer.error) {
      problem.textContent = answer.error.message;
      problem.hidden = false;
      return;
    }
    problem.hidden = true;
    latest = answer;
    const { before, after } = answer;
    name.textContent = modelName(model);
    source.textContent = [after.source, after.stack].filter(Boolean).join(" — ");
    undo.disabled = at === 0;
    redo.disabled = at === past.length - 1;
    drawStrip(before, after);
    drawSizes(answer);
    const known = after.rungs !== null;
    const map = hopMapPanel(answer, search, { model, edits: text }, fileOf(model));
    show(panels,
      rungsPanel(answer), differencePanel(answer, edits.toString()), known && map,
      after.cache_bytes !== null && curvePanel(answer, storage.context), after.cache_bytes !== null && plan.panel({ model, edits: text, context: storage.context }, answer),
      after.mixers !== null && workPanel(answer), reading(answer));
    // The address follows once the browser has drawn.
    setTimeout(() => void address());
  }

  /** @type {ReturnType<typeof editor> | null} */
  let cells = null;
  /** @param {any} before @param {any} after */
  function drawStrip(before, after) {
    const titles = after.layers.map((/** @type {any} */ layer, /** @type {number} */ index) => `Layer ${index}: ${[layer.attention, layer.recurrent].filter((word) => word && word !== "none").join(" + ") || "none"}, decided by ${layer.decided_by}`);
    const design = { strip: after.strip, base: before.strip, titles };
    if (cells && after.strip.length > 0 && cells.length === after.strip.length) {
      cells.update(design);
      stripBox.lastElementChild?.replaceWith(legend([after.strip]));
      return;
    }
    cells = after.strip.length === 0 ? null : editor({
      ...design,
      preview: (index, first) => edits.letter(index, kindFor(first)) ?? "?",
      paint: (from, to, first) => { edits.paint(from, to, kindFor(first)); void commit(); },
    });
    show(stripBox, cells?.root ?? h("p", {}, "No layer could be read from this config."), legend([after.strip]));
  }

  /** @type {{ key: string, panel: Element } | null} */
  let read = null;
  /** How the config was read: the same panel as long as it says the same. @param {any} answer */
  function reading(answer) {
    const key = JSON.stringify([model, answer.after.unknown, answer.after.assumed]);
    if (read?.key !== key) read = { key, panel: readingPanel(answer, model) };
    return read.panel;
  }

  /** What painting a layer makes of it. @param {string} first the layer where the stroke began */
  function kindFor(first) {
    return brush === "flip" ? edits.flipped(first) : brush;
  }

  async function commit() {
    past = [...past.slice(0, at + 1), edits.toString()];
    at = past.length - 1;
    await draw();
  }

  /** @param {number} by */
  async function step(by) {
    if (at + by < 0 || at + by >= past.length) return;
    at += by;
    edits = Edits.parse(past[at], base.before.strip);
    await draw();
  }

  /** @param {any} answer */
  function drawSizes(answer) {
    if (sizes.contains(document.activeElement) && document.activeElement?.getAttribute("type") === "range") return;
    const key = JSON.stringify([answer.sizes, storage, answer.after.state_dtype]);
    if (key === sizes.dataset.shown) return;
    sizes.dataset.shown = key;
    const slider = (/** @type {string} */ label, /** @type {string} */ key, /** @type {number} */ value, /** @type {number[]} */ steps) => {
      const choices = [...new Set([...steps, value])].sort((a, b) => a - b);
      const output = h("output", {}, value);
      const input = h("input", { type: "range", min: 0, max: choices.length - 1, step: 1, value: choices.indexOf(value), "aria-valuetext": value, oninput: () => {
        const chosen = choices[Number(input.value)];
        output.textContent = String(chosen);
        input.setAttribute("aria-valuetext", String(chosen));
        edits.resize(key, chosen);
        void draw();
      }, onchange: () => void commit() });
      return labelled(label, h("span", { class: "slider" }, input, output));
    };
    const context = h("input", { type: "range", id: "context", min: CONTEXTS.from, max: CONTEXTS.to, step: 1, value: Math.log2(storage.context), "aria-valuetext": `${tokens(storage.context)} tokens`, oninput: () => {
      storage.context = 2 ** Number(context.value);
      contextText.textContent = tokens(storage.context);
      context.setAttribute("aria-valuetext", `${tokens(storage.context)} tokens`);
      void draw();
    } });
    const contextText = h("output", {}, tokens(storage.context));
    const found = answer.sizes;
    show(sizes,
      labelled("Context", h("span", { class: "slider" }, context, contextText)),
      found && [
        slider("Heads", "heads", found.heads, [4, 8, 12, 16, 24, 32, 40, 48, 64, 96, 128]),
        slider("Key/value heads", "kv-heads", found.kv_heads, [1, 2, 4, 8, 16, 32].filter((n) => n <= found.heads)),
        slider("Head width", "head-dim", found.head_dim, [32, 64, 80, 96, 128, 192, 256, 512]),
      ],
      labelled("Keys and values in", select(storage.kv_dtype, DTYPES, (value) => { storage.kv_dtype = value; void draw(); }, { id: "kv_dtype" })),
      labelled("Recurrent state in", select(storage.state_dtype, [["", `as the model (${answer.after.state_dtype})`], ...DTYPES.map((one) => /** @type {[string, string]} */ ([one, one]))], (value) => { storage.state_dtype = value; void draw(); })));
  }

  /** @param {Model} chosen */
  async function choose(chosen) {
    const before = model;
    model = chosen;
    try {
      base = await question("");
    } catch (error) {
      model = before;
      throw error;
    }
    edits = Edits.parse("", base.before.strip);
    past = [""];
    at = 0;
    await draw();
  }

  const start = await chooser(model, choose);
  const brushes = [["flip", "Flip full / not full"], ["full", "Full"], ["recurrent", "Recurrent"], ["window", "Window"], ["none", "None"], ["original", "As it was"]];
  const palette = h("fieldset", { class: "palette" }, h("legend", {}, "Click or drag paints"),
    brushes.map(([key, text]) => h("label", {}, h("input", { type: "radio", name: "brush", value: key, checked: key === brush, onchange: () => { brush = key; } }), h("span", {}, text))));
  const change = (/** @type {string} */ text, /** @type {() => void} */ act, /** @type {Record<string, any>} */ attributes = {}) => button(text, () => { act(); void commit(); }, attributes);
  const every = h("input", { type: "number", min: 1, max: 128, value: 4, id: "every", "aria-label": "Every k-th layer" });
  const tools = h("div", { class: "row tools" },
    h("span", { class: "joined" }, change("Every", () => edits.rhythm(`every=${Math.max(1, Math.min(base.before.strip.length, Number(every.value) || 1))}`), { id: "apply-every" }), every, h("span", {}, "-th full")),
    change("First full", () => edits.set(edits.first(), "full"), { id: "first-full" }), change("Last full", () => edits.set(edits.last(), "full"), { id: "last-full" }),
    change("All full", () => edits.rhythm("all=full")), change("Reset", () => edits.clear(), { id: "reset" }), undo, redo);

  const keys = (/** @type {KeyboardEvent} */ event) => {
    const typing = event.target instanceof HTMLInputElement && event.target.type !== "range" && event.target.type !== "radio" || event.target instanceof HTMLTextAreaElement;
    if (typing || !(event.ctrlKey || event.metaKey)) return;
    if (event.key.toLowerCase() === "z") { event.preventDefault(); void step(event.shiftKey ? 1 : -1); }
    if (event.key.toLowerCase() === "y") { event.preventDefault(); void step(1); }
  };
  addEventListener("keydown", keys);
  const stopDrops = dropTarget((file) => void start.attempt(() => readFile(file)));

  show(root,
    h("div", { class: "row spread heading" }, h("div", {}, name, source), h("div", { class: "row" },
      button("Copy link", () => void address().then(() => copy(location.href, "Link")), { class: "quiet" }),
      commandButton(() => auditCommand(model, edits.toString(), storage, latest?.explicit_stack)),
      button("Add to compare", () => void compareWith(), { class: "quiet", id: "add-compare" }))),
    start.element,
    h("section", { class: "panel layers", "aria-label": "Layers" }, h("div", { class: "row spread" }, palette, tools), stripBox, problem, sizes),
    panels);
  await draw();

  async function compareWith() {
    const link = await modelToLink(model);
    if (!link || "config" in model) return copy(location.href, "This model is too large for a comparison's link; its own link was");
    const one = "preset" in model ? `preset:${model.preset}${edits.toString() ? `@${edits}` : ""}` : `stack:${latest.explicit_stack}`;
    const kept = (sessionStorage.getItem("compare") ?? "").split("|").filter(Boolean).filter((other) => other !== one);
    const list = [...kept, one].slice(-4);
    sessionStorage.setItem("compare", list.join("|"));
    location.hash = write("compare", { models: list.join("|"), context: storage.context === 131072 ? "" : storage.context });
  }

  return () => {
    removeEventListener("keydown", keys);
    stopDrops();
    search.stop();
  };
}

