// The designer: edits layers and sizes and shows at once the stack's rungs and costs.
import { button, copy, h, labelled, select, show } from "./dom.js";
import { Searcher, ask } from "./request.js";
import { tokens } from "./format.js";
import { editor, legend } from "./strip.js";
import { modelFromLink, modelName, modelToLink, formatAddress } from "./state.js";
import { auditCommand, commandButton } from "./command.js";
import { chooser, dropTarget, fileOf, names, readFile } from "./model.js";
import { Edits } from "./edits.js";
import { curvePanel, differencePanel, hopMapPanel, configPanel, rungsPanel, flopsPanel } from "./panels.js";
import { planner } from "./planner.js";
/** @typedef {import("./state.js").Model} Model */

export const title = "Designer";

const DTYPES = ["bf16", "fp16", "fp32", "fp8", "int8", "int4"];
/** Base-2 logarithms of the slider's contexts. */
const LOG2_CONTEXTS = { from: 10, to: 22 };

/** @param {HTMLElement} root @param {Record<string, string>} values */
export async function render(root, values) {
  const availableNames = await names();
  /** @type {Model} */
  let model = (await modelFromLink(values)) ?? { preset: "qwen3.5-9b" };
  const cacheSettings = { context: Number(values.context) || 131072, kv_dtype: values.kv_dtype ?? "bf16", state_dtype: values.state_dtype ?? "" };
  /** @type {any} */
  let base = await askDesign("");
  let edits = Edits.parse(values.edits ?? "", base.before.strip);
  /** The edits of all designs so far; `undoIndex` is the index of the current one. */
  let undoList = [edits.toString()];
  let undoIndex = 0;
  let brush = "flip";
  const search = new Searcher();
  const plan = planner(availableNames, values, () => void updateAddress());

  const name = h("h1", {});
  const source = h("p", { class: "source" });
  const stripBox = h("div", { class: "strip-box" });
  const sizes = h("div", { class: "row sizes" });
  const panels = h("div", { class: "panels" });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const undo = button("Undo", () => void step(-1), { id: "undo", title: "Ctrl+Z" });
  const redo = button("Redo", () => void step(1), { id: "redo", title: "Ctrl+Shift+Z" });

  /** The numbers of the model with some edits. @param {string} text */
  function askDesign(text) {
    return ask({ ask: "design", model, edits: text, context: cacheSettings.context, kv_dtype: cacheSettings.kv_dtype, state_dtype: cacheSettings.state_dtype || null, certify: 0 }, fileOf(model));
  }

  /** Writes the design into the page's address. */
  async function updateAddress() {
    const link = await modelToLink(model);
    // A config that is too large for a link is replaced by its stack with all sizes.
    const inLink = link ?? (latestAnswer?.explicit_stack ? { model: `stack:${latestAnswer.explicit_stack}`, width: latestAnswer.after.width ?? undefined } : {});
    const { context, kv_dtype, state_dtype } = cacheSettings;
    history.replaceState(null, "", formatAddress("designer", {
      ...inLink, edits: link ? edits.toString() : "", context: context === 131072 ? "" : context,
      kv_dtype: kv_dtype === "bf16" ? "" : kv_dtype, state_dtype, ...plan.values(),
    }));
  }

  /** @type {any} */
  let latestAnswer = null;
  async function draw() {
    const text = edits.toString();
    const answer = await askDesign(text).catch((error) => ({ error }));
    if (answer.error) {
      problem.textContent = answer.error.message;
      problem.hidden = false;
      return;
    }
    problem.hidden = true;
    latestAnswer = answer;
    const { before, after } = answer;
    name.textContent = modelName(model);
    source.textContent = [after.source, after.stack].filter(Boolean).join(" — ");
    undo.disabled = undoIndex === 0;
    redo.disabled = undoIndex === undoList.length - 1;
    drawStrip(before, after);
    drawSizes(answer);
    const layersKnown = after.rungs !== null;
    const map = hopMapPanel(answer, search, { model, edits: text }, fileOf(model));
    show(panels,
      rungsPanel(answer), differencePanel(answer, edits.toString()), layersKnown && map,
      after.cache_bytes !== null && curvePanel(answer, cacheSettings.context), after.cache_bytes !== null && plan.panel({ model, edits: text, context: cacheSettings.context }, answer),
      after.mixers !== null && flopsPanel(answer), readingPanel(answer));
    // The address is updated after the browser has drawn.
    setTimeout(() => void updateAddress());
  }

  /** @type {ReturnType<typeof editor> | null} */
  let stripEditor = null;
  /** @param {any} before @param {any} after */
  function drawStrip(before, after) {
    const titles = after.layers.map((/** @type {any} */ layer, /** @type {number} */ index) => `Layer ${index}: ${[layer.attention, layer.recurrent].filter((word) => word && word !== "none").join(" + ") || "none"}, decided by ${layer.decided_by}`);
    const design = { strip: after.strip, base: before.strip, titles };
    if (stripEditor && after.strip.length > 0 && stripEditor.length === after.strip.length) {
      stripEditor.update(design);
      stripBox.lastElementChild?.replaceWith(legend([after.strip]));
      return;
    }
    stripEditor = after.strip.length === 0 ? null : editor({
      ...design,
      preview: (index, first) => edits.letter(index, kindFor(first)) ?? "?",
      paint: (from, to, first) => { edits.paint(from, to, kindFor(first)); void commit(); },
    });
    show(stripBox, stripEditor?.root ?? h("p", {}, "No layer could be read from this config."), legend([after.strip]));
  }

  /** @type {{ key: string, panel: Element } | null} */
  let lastReading = null;
  /** The panel on how the config was read; reused while its content does not change. @param {any} answer */
  function readingPanel(answer) {
    const key = JSON.stringify([model, answer.after.unknown, answer.after.assumed]);
    if (lastReading?.key !== key) lastReading = { key, panel: configPanel(answer, model) };
    return lastReading.panel;
  }

  /** The kind that painting gives a layer. @param {string} first letter of the layer where the stroke began */
  function kindFor(first) {
    return brush === "flip" ? edits.flippedKind(first) : brush;
  }

  /** Adds the edits to the undo list and redraws. */
  async function commit() {
    undoList = [...undoList.slice(0, undoIndex + 1), edits.toString()];
    undoIndex = undoList.length - 1;
    await draw();
  }

  /** Undoes (-1) or redoes (1) an edit. @param {number} by */
  async function step(by) {
    if (undoIndex + by < 0 || undoIndex + by >= undoList.length) return;
    undoIndex += by;
    edits = Edits.parse(undoList[undoIndex], base.before.strip);
    await draw();
  }

  /** @param {any} answer */
  function drawSizes(answer) {
    if (sizes.contains(document.activeElement) && document.activeElement?.getAttribute("type") === "range") return;
    const key = JSON.stringify([answer.sizes, cacheSettings, answer.after.state_dtype]);
    if (key === sizes.dataset.shown) return;
    sizes.dataset.shown = key;
    const slider = (/** @type {string} */ label, /** @type {string} */ key, /** @type {number} */ value, /** @type {number[]} */ presetValues) => {
      const choices = [...new Set([...presetValues, value])].sort((a, b) => a - b);
      const output = h("output", {}, value);
      const input = h("input", { type: "range", min: 0, max: choices.length - 1, step: 1, value: choices.indexOf(value), "aria-valuetext": value, oninput: () => {
        const size = choices[Number(input.value)];
        output.textContent = String(size);
        input.setAttribute("aria-valuetext", String(size));
        edits.resize(key, size);
        void draw();
      }, onchange: () => void commit() });
      return labelled(label, h("span", { class: "slider" }, input, output));
    };
    const context = h("input", { type: "range", id: "context", min: LOG2_CONTEXTS.from, max: LOG2_CONTEXTS.to, step: 1, value: Math.log2(cacheSettings.context), "aria-valuetext": `${tokens(cacheSettings.context)} tokens`, oninput: () => {
      cacheSettings.context = 2 ** Number(context.value);
      contextText.textContent = tokens(cacheSettings.context);
      context.setAttribute("aria-valuetext", `${tokens(cacheSettings.context)} tokens`);
      void draw();
    } });
    const contextText = h("output", {}, tokens(cacheSettings.context));
    const headSizes = answer.sizes;
    show(sizes,
      labelled("Context", h("span", { class: "slider" }, context, contextText)),
      headSizes && [
        slider("Heads", "heads", headSizes.heads, [4, 8, 12, 16, 24, 32, 40, 48, 64, 96, 128]),
        slider("Key/value heads", "kv-heads", headSizes.kv_heads, [1, 2, 4, 8, 16, 32].filter((n) => n <= headSizes.heads)),
        slider("Head width", "head-dim", headSizes.head_dim, [32, 64, 80, 96, 128, 192, 256, 512]),
      ],
      labelled("Keys and values in", select(cacheSettings.kv_dtype, DTYPES, (value) => { cacheSettings.kv_dtype = value; void draw(); }, { id: "kv_dtype" })),
      labelled("Recurrent state in", select(cacheSettings.state_dtype, [["", `as the model (${answer.after.state_dtype})`], ...DTYPES.map((dtype) => /** @type {[string, string]} */ ([dtype, dtype]))], (value) => { cacheSettings.state_dtype = value; void draw(); })));
  }

  /** Starts a design from another model. @param {Model} newModel */
  async function choose(newModel) {
    const previous = model;
    model = newModel;
    try {
      base = await askDesign("");
    } catch (error) {
      model = previous;
      throw error;
    }
    edits = Edits.parse("", base.before.strip);
    undoList = [""];
    undoIndex = 0;
    await draw();
  }

  const modelChooser = await chooser(model, choose);
  const brushes = [["flip", "Flip full / not full"], ["full", "Full"], ["recurrent", "Recurrent"], ["window", "Window"], ["none", "None"], ["original", "As it was"]];
  const palette = h("fieldset", { class: "palette" }, h("legend", {}, "Click or drag paints"),
    brushes.map(([key, text]) => h("label", {}, h("input", { type: "radio", name: "brush", value: key, checked: key === brush, onchange: () => { brush = key; } }), h("span", {}, text))));
  const editButton = (/** @type {string} */ text, /** @type {() => void} */ edit, /** @type {Record<string, any>} */ attributes = {}) => button(text, () => { edit(); void commit(); }, attributes);
  const every = h("input", { type: "number", min: 1, max: 128, value: 4, id: "every", "aria-label": "Every k-th layer" });
  const tools = h("div", { class: "row tools" },
    h("span", { class: "joined" }, editButton("Every", () => edits.setPattern(`every=${Math.max(1, Math.min(base.before.strip.length, Number(every.value) || 1))}`), { id: "apply-every" }), every, h("span", {}, "-th full")),
    editButton("First full", () => edits.set(edits.firstMixingLayer(), "full"), { id: "first-full" }), editButton("Last full", () => edits.set(edits.lastMixingLayer(), "full"), { id: "last-full" }),
    editButton("All full", () => edits.setPattern("all=full")), editButton("Reset", () => edits.clear(), { id: "reset" }), undo, redo);

  const onKey = (/** @type {KeyboardEvent} */ event) => {
    const typing = event.target instanceof HTMLInputElement && event.target.type !== "range" && event.target.type !== "radio" || event.target instanceof HTMLTextAreaElement;
    if (typing || !(event.ctrlKey || event.metaKey)) return;
    if (event.key.toLowerCase() === "z") { event.preventDefault(); void step(event.shiftKey ? 1 : -1); }
    if (event.key.toLowerCase() === "y") { event.preventDefault(); void step(1); }
  };
  addEventListener("keydown", onKey);
  const removeDropTarget = dropTarget((file) => void modelChooser.attempt(() => readFile(file)));

  show(root,
    h("div", { class: "row spread heading" }, h("div", {}, name, source), h("div", { class: "row" },
      button("Copy link", () => void updateAddress().then(() => copy(location.href, "Link")), { class: "quiet" }),
      commandButton(() => auditCommand(model, edits.toString(), cacheSettings, latestAnswer?.explicit_stack)),
      button("Add to compare", () => void addToCompare(), { class: "quiet", id: "add-compare" }))),
    modelChooser.element,
    h("section", { class: "panel layers", "aria-label": "Layers" }, h("div", { class: "row spread" }, palette, tools), stripBox, problem, sizes),
    panels);
  await draw();

  async function addToCompare() {
    const link = await modelToLink(model);
    if (!link || "config" in model) return copy(location.href, "This model is too large for a comparison's link; its own link was");
    const entry = "preset" in model ? `preset:${model.preset}${edits.toString() ? `@${edits}` : ""}` : `stack:${latestAnswer.explicit_stack}`;
    const others = (sessionStorage.getItem("compare") ?? "").split("|").filter(Boolean).filter((other) => other !== entry);
    const list = [...others, entry].slice(-4);
    sessionStorage.setItem("compare", list.join("|"));
    location.hash = formatAddress("compare", { models: list.join("|"), context: cacheSettings.context === 131072 ? "" : cacheSettings.context });
  }

  return () => {
    removeEventListener("keydown", onKey);
    removeDropTarget();
    search.stop();
  };
}

