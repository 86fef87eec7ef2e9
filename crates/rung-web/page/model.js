// Chooses the model of a design: a preset, a pasted config, a dropped file, or a stack in the stack grammar.
import { button, h, labelled, select, show } from "./dom.js";
import { ask } from "./request.js";
/** @typedef {import("./state.js").Model} Model */

/** Dropped files by name; they are too large for a link and kept while the page is open. @type {Map<string, Uint8Array>} */
export const files = new Map();

/** Bytes read of a GGUF file: a header with a large vocabulary takes a few MB. */
const MAX_HEADER_BYTES = 32 << 20;
/** Largest config in bytes; the Rust code has its own limit. */
const MAX_TEXT = 4 << 20;

/** @type {Promise<any> | null} */
let namesPromise = null;
/** Names of presets, engines, GPUs and so on. @returns {Promise<any>} */
export function names() {
  namesPromise ??= ask({ ask: "names" });
  return namesPromise;
}

/** The bytes of a model that is a file, else null. @param {Model} model */
export function fileOf(model) {
  return "file" in model ? files.get(model.file.name) ?? null : null;
}

/** Reads a dropped file as a model. @param {File} file @returns {Promise<Model>} */
export async function readFile(file) {
  const magic = new Uint8Array(await file.slice(0, 4).arrayBuffer());
  if (String.fromCharCode(...magic) === "GGUF") {
    files.set(file.name, new Uint8Array(await file.slice(0, MAX_HEADER_BYTES).arrayBuffer()));
    return { file: { name: file.name } };
  }
  if (file.size > MAX_TEXT) throw new Error(`${file.name}: ${file.size} bytes are more than any config has (${MAX_TEXT})`);
  return { config: { text: await file.text(), name: file.name } };
}

/**
 * The panel that chooses a model.
 * @param {Model} model
 * @param {(model: Model) => Promise<void>} choose
 */
export async function chooser(model, choose) {
  const { presets } = await names();
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  /** Chooses a model; an error is shown in the panel. @param {() => Promise<Model> | Model} getModel */
  const attempt = async (getModel) => {
    problem.hidden = true;
    try {
      await choose(await getModel());
    } catch (error) {
      problem.textContent = error instanceof Error ? error.message : String(error);
      problem.hidden = false;
    }
  };
  const body = h("div", { class: "chooser-body" });
  const preset = () => labelled("Preset", select("preset" in model ? model.preset : presets[0], presets, (name) => void attempt(() => ({ preset: name })), { id: "preset" }));
  const config = () => {
    const area = h("textarea", { rows: 8, id: "config", spellcheck: "false", placeholder: '{ "model_type": "…", "num_hidden_layers": 32, … }', "aria-label": "Text of a config.json" });
    if ("config" in model && model.config.text.length < 200000) area.value = model.config.text;
    const input = h("input", { type: "file", id: "file", "aria-label": "A config.json or a GGUF file", onchange: () => input.files?.[0] && void attempt(() => readFile(input.files[0])) });
    return [area, h("div", { class: "row" },
      button("Read this config", () => void attempt(() => {
        if (area.value.length > MAX_TEXT) throw new Error(`the text has ${area.value.length} characters; no config has more than ${MAX_TEXT}`);
        return { config: { text: area.value, name: "config.json" } };
      }), { id: "read-config", class: "primary" }),
      h("label", { class: "file" }, "or a file: ", input)),
    h("p", { class: "hint" }, "Nothing leaves this computer. A config.json or a GGUF file (only its header is read) can also be dropped anywhere on this page.")];
  };
  const stack = () => {
    const start = "stack" in model ? model.stack : { text: "(gdn*3 full)*8", heads: 16, head_dim: 128, kv_heads: 4, width: 2048 };
    const text = h("input", { type: "text", id: "stack", value: start.text, spellcheck: "false", "aria-label": "Stack" });
    const number = (/** @type {string} */ name, /** @type {number | undefined} */ value) => h("input", { type: "number", min: 1, id: name, value: value ?? "" });
    const inputs = { heads: number("heads", start.heads), head_dim: number("head_dim", start.head_dim), kv_heads: number("kv_heads", start.kv_heads), width: number("width", start.width) };
    return [labelled("Stack", text), h("div", { class: "row sizes" },
      labelled("Heads", inputs.heads), labelled("Head width", inputs.head_dim), labelled("Key/value heads", inputs.kv_heads), labelled("Model width", inputs.width)),
    h("div", { class: "row" }, button("Use this stack", () => void attempt(() => {
      /** @type {any} */
      const stack = { text: text.value };
      for (const [name, input] of Object.entries(inputs)) if (input.value) stack[name] = Number(input.value);
      return { stack };
    }), { id: "use-stack", class: "primary" })),
    h("p", { class: "hint" }, "Layers first to last: ", h("code", {}, "full"), ", ", h("code", {}, "gdn"), ", ", h("code", {}, "mamba2"), ", ", h("code", {}, "window{size=4096}"), ", ", h("code", {}, "full+mamba2"), " in parallel; ", h("code", {}, "(…)*8"), " repeats.")];
  };
  const tabs = { preset: ["Preset", preset], config: ["Config or file", config], stack: ["Stack grammar", stack] };
  let open = "stack" in model ? "stack" : "preset" in model ? "preset" : "config";
  const list = h("div", { class: "tabs", role: "group", "aria-label": "Start from" });
  const render = () => {
    show(list, Object.entries(tabs).map(([name, [title]]) => button(/** @type {string} */ (title), () => { open = name; render(); }, { "aria-pressed": String(name === open), "data-tab": name })));
    show(body, /** @type {any} */ (tabs)[open][1]());
  };
  render();
  return { element: h("section", { class: "panel chooser", "aria-label": "Start" }, h("div", { class: "row" }, h("h2", {}, "Start from"), list), body, problem), attempt };
}

/** Accepts files dropped anywhere; returns a function that stops this. @param {(file: File) => void} onFile @returns {() => void} */
export function dropTarget(onFile) {
  const over = (/** @type {DragEvent} */ event) => event.preventDefault();
  const drop = (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    const file = event.dataTransfer?.files?.[0];
    if (file) onFile(file);
  };
  addEventListener("dragover", over);
  addEventListener("drop", drop);
  return () => {
    removeEventListener("dragover", over);
    removeEventListener("drop", drop);
  };
}
