// Asks the Rust code: WebAssembly in a folder of static files, POST /api under `rung serve`. Same questions, same answers.

/** A question that was refused; the message is for people. */
export class Refusal extends Error {}

// A worker has no document; its address says how to ask.
const api = typeof document === "undefined" ? new URLSearchParams(globalThis.location?.search).get("engine") : document.documentElement.dataset.engine;

/** @type {Map<string, Promise<WebAssembly.Module>>} */
const compiled = new Map();
/** @type {Map<string, any>} */
const instances = new Map();

/** @param {string} name */
async function compile(name) {
  const response = await fetch(new URL(name, import.meta.url));
  if (!response.ok) throw new Refusal(`${name} is missing beside the page: build it with \`cargo run -p rung-web --example build_page\``);
  return WebAssembly.compile(await response.arrayBuffer());
}

/** @param {string} name */
async function load(name) {
  if (instances.has(name)) return instances.get(name);
  if (!compiled.has(name)) compiled.set(name, compile(name));
  const { exports } = await WebAssembly.instantiate(/** @type {WebAssembly.Module} */ (await compiled.get(name)), {});
  instances.set(name, exports);
  return exports;
}

/**
 * @param {any} wasm
 * @param {Uint8Array} request
 * @param {Uint8Array | null} file
 * @returns {[boolean, string]}
 */
export function call(wasm, request, file) {
  const length = request.length + (file ? 1 + file.length : 0);
  const at = wasm.input(length);
  const memory = new Uint8Array(wasm.memory.buffer, at, length);
  memory.set(request);
  if (file) memory.set(file, request.length + 1);
  const failed = wasm.run() !== 0;
  const answer = new Uint8Array(wasm.memory.buffer, wasm.output(), wasm.output_length());
  return [failed, new TextDecoder().decode(answer)];
}

/**
 * Asks; the answer is the program's text.
 * @param {any} request
 * @param {Uint8Array | null} [file]
 * @returns {Promise<string>}
 */
export async function askText(request, file = null) {
  const body = new TextEncoder().encode(JSON.stringify(request));
  if (api === "api") {
    const parts = file ? [body, new Uint8Array(1), file] : [body];
    const response = await fetch("api", { method: "POST", headers: { "content-type": "application/octet-stream" }, body: new Blob(/** @type {any} */ (parts)) });
    const text = await response.text();
    if (!response.ok) throw new Refusal(text.trim());
    return text;
  }
  // Forward passes bring tensors along: a module of their own, loaded when first needed.
  const name = request.ask === "pass" ? "pass.wasm" : "rung.wasm";
  const wasm = await load(name);
  try {
    const [failed, text] = call(wasm, body, file);
    if (failed) throw new Refusal(text.trim());
    return text;
  } catch (error) {
    if (error instanceof Refusal) throw error;
    // A trap leaves the instance in an unknown state: the next question gets a new one.
    instances.delete(name);
    throw new Refusal(`the question could not be answered (${error instanceof Error ? error.message : error})`);
  }
}

/** Asks; the answer is parsed. @param {any} request @param {Uint8Array | null} [file] @returns {Promise<any>} */
export async function ask(request, file = null) {
  return JSON.parse(await askText(request, file));
}

/** A worker that searches; a new search ends the old one. */
export class Searcher {
  constructor() {
    /** @type {Worker | null} */
    this.worker = null;
    this.next = 0;
    /** @type {Map<number, {resolve: (value: any) => void, reject: (error: any) => void, working: boolean}>} */
    this.waiting = new Map();
  }

  /** Ends what is under way. A worker without work is kept, as starting one is dear. */
  stop() {
    if ([...this.waiting.values()].some(({ working }) => working)) {
      this.worker?.terminate();
      this.worker = null;
    }
    for (const { reject } of this.waiting.values()) reject(new Stopped());
    this.waiting.clear();
  }

  /** Waits, unless it is stopped. @param {number} milliseconds @returns {Promise<void>} */
  pause(milliseconds) {
    const id = this.next++;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve: () => resolve(), reject, working: false });
      setTimeout(() => this.waiting.delete(id) && resolve(), milliseconds);
    });
  }

  /** @param {any} request @param {Uint8Array | null} [file] @returns {Promise<any>} */
  ask(request, file = null) {
    if (!this.worker) {
      this.worker = new Worker(new URL(`worker.js?engine=${api}`, import.meta.url), { type: "module" });
      this.worker.onmessage = ({ data }) => {
        const waiting = this.waiting.get(data.id);
        this.waiting.delete(data.id);
        if (data.error !== undefined) waiting?.reject(new Refusal(data.error));
        else waiting?.resolve(data.answer);
      };
      this.worker.onerror = (event) => {
        for (const { reject } of this.waiting.values()) reject(new Refusal(event.message || "the search could not be started"));
        this.waiting.clear();
      };
    }
    const id = this.next++;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject, working: true });
      this.worker?.postMessage({ id, request, file });
    });
  }
}

/** A search that a newer one replaced. */
export class Stopped extends Error {}
