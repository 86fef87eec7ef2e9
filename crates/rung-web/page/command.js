// The command line that gives the same answer as the page.
import { button, copy, h } from "./dom.js";
import { quote } from "./format.js";
/** @typedef {import("./state.js").Model} Model */

/** The model as an argument of a command. @param {Model} model */
export function modelArgument(model) {
  if ("preset" in model) return quote(model.preset);
  if ("config" in model) return "config.json";
  if ("file" in model) return quote(model.file.name);
  return quote(model.stack.text);
}

/** Options as flags; empty ones are left out. @param {Record<string, string | number | null | undefined>} options */
export function flags(options) {
  return Object.entries(options)
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => ` --${name.replaceAll("_", "-")} ${quote(/** @type {any} */ (value))}`)
    .join("");
}

/** Sizes of a stack as flags. @param {import("./state.js").StackInput} stack */
export function sizeFlags({ heads, head_dim, kv_heads, width, bits }) {
  return flags({ heads, head_dim, kv_heads, width, bits });
}

/**
 * The command for the audit of a model with edits. For a stack it is `rung capacity`, which takes no edits, so the edited stack is given.
 * @param {Model} model @param {string} edits @param {{ context: number, kv_dtype: string, state_dtype: string }} cacheSettings @param {string} [editedStack]
 */
export function auditCommand(model, edits, cacheSettings, editedStack) {
  if ("stack" in model) return `rung capacity ${quote(edits && editedStack ? editedStack : model.stack.text)}${sizeFlags(model.stack)}`;
  return `rung audit ${modelArgument(model)}${flags({ what_if: edits, context: cacheSettings.context, kv_dtype: cacheSettings.kv_dtype, state_dtype: cacheSettings.state_dtype })}`;
}

/** A button that copies a command. @param {() => string} command */
export function commandButton(command) {
  return button("Copy as CLI command", () => copy(command(), "Command"), { class: "quiet", title: "The same question for the program rung" });
}

/** A command with a button that copies it. @param {string} command */
export function commandLine(command) {
  return h("p", { class: "command" }, h("code", {}, command), " ", button("Copy", () => copy(command, "Command"), { class: "quiet", "aria-label": `Copy command ${command}` }));
}
