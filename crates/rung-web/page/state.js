// The page's state is in its address, so that a link restores it.
//
//     #/1/designer?model=preset:qwen3.5-9b&edits=every%3D4&context=131072
//
// The 1 is the version: links of version 1 stay readable when the form changes.

/** @typedef {{ preset: string } | { config: { text: string, name: string } } | { stack: StackInput } | { file: { name: string } }} Model */
/** @typedef {{ text: string, heads?: number, head_dim?: number, kv_heads?: number, width?: number, bits?: number }} StackInput */
/** @typedef {{ view: string, values: Record<string, string> }} Address */

export const VERSION = 1;
const VIEWS = ["gallery", "designer", "compare", "certificate", "pass", "learn", "runs"];

/** Parses an address; one that is not understood gives the gallery and a message. @param {string} hash @returns {Address & { problem?: string }} */
export function parseAddress(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean);
  const values = Object.fromEntries(new URLSearchParams(query));
  if (parts.length === 0) return { view: "gallery", values };
  const version = Number(parts[0]);
  if (version !== VERSION) return { view: "gallery", values: {}, problem: `This link has version ${parts[0].slice(0, 20)}, which this page does not read (it reads ${VERSION}).` };
  if (!VIEWS.includes(parts[1])) return { view: "gallery", values: {}, problem: `This link names no view of this page: ${String(parts[1]).slice(0, 40)}.` };
  return { view: parts[1], values };
}

/** The address of a view with values. @param {string} view @param {Record<string, string | number | null | undefined>} values */
export function formatAddress(view, values) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  return `#/${VERSION}/${view}${text ? `?${text}` : ""}`;
}

/** @param {Uint8Array} bytes */
function toBase64(bytes) {
  let text = "";
  for (let start = 0; start < bytes.length; start += 32768) text += String.fromCharCode(...bytes.subarray(start, start + 32768));
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** @param {string} text */
function fromBase64(text) {
  const decoded = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(decoded, (letter) => letter.charCodeAt(0));
}

/** Compresses or decompresses bytes; fails if the result has more than `maxBytes`. @param {Uint8Array} bytes @param {any} transform @param {number} maxBytes */
async function pipe(bytes, transform, maxBytes) {
  const stream = new Blob([/** @type {any} */ (bytes)]).stream().pipeThrough(transform);
  const reader = stream.getReader();
  const parts = [];
  let length = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    length += value.length;
    if (length > maxBytes) throw new Error("the link holds too much");
    parts.push(value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

/** Longest model in a link; chat programs and servers truncate longer links. */
const MAX_LINK_LENGTH = 16000;
const MAX_CONFIG_BYTES = 1 << 20;

/**
 * A model as values of a link; null if it is too large.
 * @param {Model} model
 * @returns {Promise<Record<string, string | number | undefined> | null>}
 */
export async function modelToLink(model) {
  if ("preset" in model) return { model: `preset:${model.preset}` };
  if ("stack" in model) {
    const { text, heads, head_dim, kv_heads, width, bits } = model.stack;
    return { model: `stack:${text}`, heads, head_dim, kv_heads, width, bits };
  }
  if ("config" in model) {
    if (model.config.text.length > MAX_CONFIG_BYTES) return null;
    const compressed = await pipe(new TextEncoder().encode(model.config.text), new CompressionStream("deflate-raw"), MAX_CONFIG_BYTES);
    const text = toBase64(compressed);
    return text.length > MAX_LINK_LENGTH ? null : { model: `config:${text}`, name: model.config.name };
  }
  return null;
}

/** The model of a link. @param {Record<string, string>} values @returns {Promise<Model | null>} */
export async function modelFromLink(values) {
  const text = values.model;
  if (!text) return null;
  const kind = text.slice(0, text.indexOf(":"));
  const content = text.slice(kind.length + 1);
  if (kind === "preset") return { preset: content };
  if (kind === "stack") {
    /** @type {any} */
    const stack = { text: content };
    for (const name of ["heads", "head_dim", "kv_heads", "width", "bits"]) {
      const number = Number(values[name]);
      if (values[name] && Number.isSafeInteger(number) && number >= 0) stack[name] = number;
    }
    return { stack };
  }
  if (kind === "config") {
    const bytes = await pipe(fromBase64(content), new DecompressionStream("deflate-raw"), MAX_CONFIG_BYTES);
    return { config: { text: new TextDecoder().decode(bytes), name: values.name || "config.json" } };
  }
  throw new Error("the link names no model that this page knows");
}

/** The name of a model. @param {Model} model */
export function modelName(model) {
  if ("preset" in model) return model.preset;
  if ("stack" in model) return model.stack.text;
  if ("config" in model) return model.config.name;
  return model.file.name;
}
