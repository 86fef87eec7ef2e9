// All state is in the address, so that a link is the whole of it.
//
//     #/1/designer?model=preset:qwen3.5-9b&edits=every%3D4&context=131072
//
// The 1 is the version: links of version 1 stay readable when the form changes.

/** @typedef {{ preset: string } | { config: { text: string, name: string } } | { stack: StackInput } | { file: { name: string } }} Model */
/** @typedef {{ text: string, heads?: number, head_dim?: number, kv_heads?: number, width?: number, bits?: number }} StackInput */
/** @typedef {{ view: string, values: Record<string, string> }} Place */

export const VERSION = 1;
const VIEWS = ["gallery", "designer", "compare", "certificate", "pass", "learn", "runs"];

/** Reads an address. What is not understood becomes the gallery, with a word about it. @param {string} hash @returns {Place & { problem?: string }} */
export function read(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean);
  const values = Object.fromEntries(new URLSearchParams(query));
  if (parts.length === 0) return { view: "gallery", values };
  const version = Number(parts[0]);
  if (version !== VERSION) return { view: "gallery", values: {}, problem: `This link has version ${parts[0].slice(0, 20)}, which this page does not read (it reads ${VERSION}).` };
  if (!VIEWS.includes(parts[1])) return { view: "gallery", values: {}, problem: `This link names no view of this page: ${String(parts[1]).slice(0, 40)}.` };
  return { view: parts[1], values };
}

/** Writes an address. @param {string} view @param {Record<string, string | number | null | undefined>} values */
export function write(view, values) {
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
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** @param {string} text */
function fromBase64(text) {
  const plain = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(plain, (letter) => letter.charCodeAt(0));
}

/** @param {Uint8Array} bytes @param {any} through @param {number} most */
async function pipe(bytes, through, most) {
  const stream = new Blob([/** @type {any} */ (bytes)]).stream().pipeThrough(through);
  const reader = stream.getReader();
  const parts = [];
  let length = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    length += value.length;
    if (length > most) throw new Error("the link holds too much");
    parts.push(value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

/** Links with more than this are cut by chat programs and servers. */
const MOST_IN_LINK = 16000;
const MOST_CONFIG = 1 << 20;

/**
 * A model as part of an address; null where it is too large for one.
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
    if (model.config.text.length > MOST_CONFIG) return null;
    const small = await pipe(new TextEncoder().encode(model.config.text), new CompressionStream("deflate-raw"), MOST_CONFIG);
    const text = toBase64(small);
    return text.length > MOST_IN_LINK ? null : { model: `config:${text}`, name: model.config.name };
  }
  return null;
}

/** The model of an address. @param {Record<string, string>} values @returns {Promise<Model | null>} */
export async function modelFromLink(values) {
  const text = values.model;
  if (!text) return null;
  const kind = text.slice(0, text.indexOf(":"));
  const rest = text.slice(kind.length + 1);
  if (kind === "preset") return { preset: rest };
  if (kind === "stack") {
    /** @type {any} */
    const stack = { text: rest };
    for (const name of ["heads", "head_dim", "kv_heads", "width", "bits"]) {
      const number = Number(values[name]);
      if (values[name] && Number.isSafeInteger(number) && number >= 0) stack[name] = number;
    }
    return { stack };
  }
  if (kind === "config") {
    const bytes = await pipe(fromBase64(rest), new DecompressionStream("deflate-raw"), MOST_CONFIG);
    return { config: { text: new TextDecoder().decode(bytes), name: values.name || "config.json" } };
  }
  throw new Error("the link names no model that this page knows");
}

/** What a model is called. @param {Model} model */
export function modelName(model) {
  if ("preset" in model) return model.preset;
  if ("stack" in model) return model.stack.text;
  if ("config" in model) return model.config.name;
  return model.file.name;
}
