// Sends requests to the Rust code: to WebAssembly on a static site, to POST /api under `rung serve`. Both give the same answers.

/** A request that failed; the message is shown to the user. */
export class RequestError extends Error {}

/** Who answers: "wasm", the WebAssembly module, or "api", the server. A worker has no document; its address says it. */
const backend = typeof document === "undefined" ? new URLSearchParams(globalThis.location?.search).get("backend") : document.documentElement.dataset.backend;

/** @type {Map<string, Promise<WebAssembly.Module>>} */
const modules = new Map();
/** @type {Map<string, any>} */
const instances = new Map();

/** Fetches and compiles a WebAssembly module. @param {string} name */
async function compile(name) {
  const response = await fetch(new URL(name, import.meta.url));
  if (!response.ok) throw new RequestError(`${name} is missing next to the page: build it with \`cargo run -p rung-web --example build_page\``);
  return WebAssembly.compile(await response.arrayBuffer());
}

/** The exports of a module's instance, which is created on first use. @param {string} name */
async function load(name) {
  if (instances.has(name)) return instances.get(name);
  if (!modules.has(name)) modules.set(name, compile(name));
  const { exports } = await WebAssembly.instantiate(/** @type {WebAssembly.Module} */ (await modules.get(name)), {});
  instances.set(name, exports);
  return exports;
}

/**
 * Calls the module with a request and a file. Returns whether it failed, and the answer or the error message.
 * @param {any} wasm
 * @param {Uint8Array} request
 * @param {Uint8Array | null} file
 * @returns {[boolean, string]}
 */
export function call(wasm, request, file) {
  const length = request.length + (file ? 1 + file.length : 0);
  const address = wasm.input(length);
  const memory = new Uint8Array(wasm.memory.buffer, address, length);
  memory.set(request);
  if (file) memory.set(file, request.length + 1);
  const failed = wasm.run() !== 0;
  const answer = new Uint8Array(wasm.memory.buffer, wasm.output(), wasm.output_length());
  return [failed, new TextDecoder().decode(answer)];
}

/**
 * Sends a request and returns the answer as text.
 * @param {any} request
 * @param {Uint8Array | null} [file]
 * @returns {Promise<string>}
 */
export async function askText(request, file = null) {
  const body = new TextEncoder().encode(JSON.stringify(request));
  if (backend === "api") {
    const parts = file ? [body, new Uint8Array(1), file] : [body];
    const response = await fetch("api", { method: "POST", headers: { "content-type": "application/octet-stream" }, body: new Blob(/** @type {any} */ (parts)) });
    const text = await response.text();
    if (!response.ok) throw new RequestError(text.trim());
    return text;
  }
  // Forward passes need the tensor code: a module of their own, loaded on first use.
  const name = request.ask === "pass" ? "pass.wasm" : "rung.wasm";
  const wasm = await load(name);
  try {
    const [failed, text] = call(wasm, body, file);
    if (failed) throw new RequestError(text.trim());
    return text;
  } catch (error) {
    if (error instanceof RequestError) throw error;
    // A trap leaves the instance in an unknown state: the next request gets a new one.
    instances.delete(name);
    throw new RequestError(`the question could not be answered (${error instanceof Error ? error.message : error})`);
  }
}

/** Sends a request and parses the answer. @param {any} request @param {Uint8Array | null} [file] @returns {Promise<any>} */
export async function ask(request, file = null) {
  return JSON.parse(await askText(request, file));
}

/** Runs searches in a worker; they can be stopped. */
export class Searcher {
  constructor() {
    /** @type {Worker | null} */
    this.worker = null;
    this.nextId = 0;
    /** @type {Map<number, {resolve: (value: any) => void, reject: (error: any) => void, inWorker: boolean}>} */
    this.pending = new Map();
  }

  /** Cancels all pending requests. An idle worker is kept, because starting one is slow. */
  stop() {
    if ([...this.pending.values()].some(({ inWorker }) => inWorker)) {
      this.worker?.terminate();
      this.worker = null;
    }
    for (const { reject } of this.pending.values()) reject(new Stopped());
    this.pending.clear();
  }

  /** Waits; rejects if the searcher is stopped meanwhile. @param {number} milliseconds @returns {Promise<void>} */
  pause(milliseconds) {
    const id = this.nextId++;
    return new Promise((resolve, reject) => {
      this.pending.set(id, { resolve: () => resolve(), reject, inWorker: false });
      setTimeout(() => this.pending.delete(id) && resolve(), milliseconds);
    });
  }

  /** @param {any} request @param {Uint8Array | null} [file] @returns {Promise<any>} */
  ask(request, file = null) {
    if (!this.worker) {
      this.worker = new Worker(new URL(`worker.js?backend=${backend}`, import.meta.url), { type: "module" });
      this.worker.onmessage = ({ data }) => {
        const pending = this.pending.get(data.id);
        this.pending.delete(data.id);
        if (data.error !== undefined) pending?.reject(new RequestError(data.error));
        else pending?.resolve(data.answer);
      };
      this.worker.onerror = (event) => {
        for (const { reject } of this.pending.values()) reject(new RequestError(event.message || "the search could not be started"));
        this.pending.clear();
      };
    }
    const id = this.nextId++;
    return new Promise((resolve, reject) => {
      this.pending.set(id, { resolve, reject, inWorker: true });
      this.worker?.postMessage({ id, request, file });
    });
  }
}

/** The error of a search that was stopped. */
export class Stopped extends Error {}
