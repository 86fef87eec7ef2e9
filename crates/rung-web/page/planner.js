// The engine planner: the memory that an engine allocates for this design, and the context and requests that fit.
import { h, labelled, select, show } from "./dom.js";
import { ask } from "./request.js";
import { bytes, commas, counts } from "./format.js";
import { commandButton, flags, modelArgument } from "./command.js";
import { fileOf } from "./model.js";
import { evidence } from "./panels.js";
/** @typedef {import("./state.js").Model} Model */

const FORMATS = ["", "bf16", "fp16", "fp8", "q8_0", "q4_0"];

/**
 * @param {any} availableNames names of engines and GPUs
 * @param {Record<string, string>} values
 * @param {() => void} onChange
 */
export function planner(availableNames, values, onChange) {
  const state = { engine: values.engine ?? "vllm", on: values.on ?? "h100", tp: values.tp ?? "1", kv: values.plan_kv ?? "", weights: values.weights ?? "16bpw", requests: values.requests ?? "1" };

  /** The settings that differ from the defaults, for a link. */
  function valuesForLink() {
    const defaults = /** @type {Record<string, string>} */ ({ engine: "vllm", on: "h100", tp: "1", kv: "", weights: "16bpw", requests: "1" });
    return Object.fromEntries(Object.entries(state).filter(([name, value]) => value !== defaults[name]).map(([name, value]) => [name === "kv" ? "plan_kv" : name, value]));
  }

  /** @param {{ model: Model, edits: string, context: number }} design @param {any} answer */
  function panel(design, answer) {
    const result = h("div", { class: "plan-result", "aria-live": "polite" });
    const request = () => ({
      ask: "plan", model: design.model, edits: design.edits, engine: state.engine, on: state.on, tp: Number(state.tp) || 1, kv_dtype: state.kv,
      weights: answer.parameters === null && /bpw$/.test(state.weights) ? "" : state.weights, context: design.context, requests: Number(state.requests) || 1,
    });
    const draw = async () => {
      try {
        show(result, planTable(await ask(request(), fileOf(design.model))));
      } catch (error) {
        show(result, h("p", { class: "problem", role: "alert" }, error instanceof Error ? error.message : String(error)));
      }
    };
    const set = (/** @type {string} */ name) => (/** @type {string} */ value) => {
      /** @type {any} */ (state)[name] = value;
      onChange();
      void draw();
    };
    const input = (/** @type {string} */ name, /** @type {Record<string, any>} */ attributes) => h("input", { ...attributes, value: /** @type {any} */ (state)[name], onchange: (/** @type {any} */ event) => set(name)(event.target.value) });
    void draw();
    const command = () => {
      const { engine, on, tp, kv_dtype, weights, context, requests } = request();
      return `rung plan ${modelArgument(design.model)}${flags({ engine, on, tp: tp === 1 ? "" : tp, kv_dtype, weights, context, requests: requests === 1 ? "" : requests, what_if: design.edits })}`;
    };
    return h("section", { class: "panel plan", "aria-label": "Engine planner" }, h("div", { class: "row spread" }, h("h2", {}, "Engine planner"), !("stack" in design.model) && commandButton(command)),
      h("div", { class: "row sizes" },
        labelled("Engine", select(state.engine, availableNames.engines.map((/** @type {any} */ engine) => [engine.name, `${engine.name} ${engine.version}`]), set("engine"), { id: "engine" })),
        labelled("GPU", select(state.on, availableNames.devices.map((/** @type {any} */ device) => [device.name, `${device.name} ${device.gib} GiB`]), set("on"), { id: "gpu" })),
        labelled("Tensor parallel", select(state.tp, ["1", "2", "4", "8"], set("tp"), { id: "tp" })),
        labelled("Keys and values", select(state.kv, FORMATS.map((format) => /** @type {[string, string]} */ ([format, format || "engine's default"])), set("kv"))),
        labelled("Weights", input("weights", { type: "text", size: 8, id: "weights", title: "bytes such as 14GB, or bits per weight such as 4.5bpw" })),
        labelled("Requests", input("requests", { type: "number", min: 1, id: "requests" }))),
      h("p", { class: "muted" }, answer.parameters === null ? "The config does not give every size, so weights are not counted: give their bytes, such as 14GB."
        : [`${counts(answer.parameters)} weights `, evidence("counted", "counted from the config"), "; give the bits of each (4.5bpw) or all bytes (14GB)."]),
      result);
  }

  return { panel, values: valuesForLink };
}

/** The numbers, flags and assumptions of a plan. @param {any} plan */
function planTable(plan) {
  /** @type {[string, number | null, (n: number) => string][]} */
  const rows = [
    ["Requests that fit at this context", plan.requests_fit, commas], ["Tokens that fit", plan.tokens_fit, commas], ["Longest context that fits", plan.context_fit, commas],
    ["KV cache per token", plan.bytes_per_token, bytes], ["One request", plan.bytes_per_request, bytes], ["Recurrent state", plan.state_bytes, bytes], ["All caches", plan.cache_bytes, bytes],
    ["Weights on one device", plan.weight_bytes, bytes], ["Left for caches", plan.available_bytes, bytes], ["Block", plan.block_tokens, (n) => `${commas(n)} tokens`], ["Page", plan.page_bytes, bytes],
  ];
  const list = (/** @type {string} */ title, /** @type {string[]} */ items, /** @type {boolean} */ code = false) => items.length > 0 && h("details", { open: title !== "Assumed" }, h("summary", {}, title), h("ul", {}, items.map((item) => h("li", {}, code ? h("code", {}, item) : item))));
  return [
    h("table", {}, h("caption", { class: "muted" }, `${plan.engine} ${plan.engine_version}: keys and values in ${plan.kv_dtype}, state in ${plan.state_dtype}; bytes of one device`),
      h("tbody", {}, rows.filter(([, value]) => value !== null).map(([text, value, format]) => h("tr", {}, h("th", { scope: "row" }, text), h("td", { class: "number" }, format(/** @type {number} */ (value))))))),
    list("Unknown", plan.unknown), list("Flags to set", plan.flags, true), list("Assumed", plan.assumed)];
}
