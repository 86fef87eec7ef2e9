// The WebAssembly's answers are the program's, byte for byte: all presets and all stored configs.
// node equal.mjs PAGE-FOLDER RUNG-PROGRAM
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { call } from "../page/engine.js";

const [folder, rung] = process.argv.slice(2);
const here = path.dirname(fileURLToPath(import.meta.url));
const { instance } = await WebAssembly.instantiate(fs.readFileSync(path.join(folder, "rung.wasm")), {});
const ask = (request) => call(instance.exports, new TextEncoder().encode(JSON.stringify(request)), null);

/** What the program prints; its exit code says more, and is not compared. */
function program(args, input = "") {
  try {
    return execFileSync(rung, args, { input, encoding: "utf8", stdio: ["pipe", "pipe", "pipe"] });
  } catch (error) {
    return error.stdout || JSON.parse(error.stderr).error;
  }
}

let compared = 0;
let different = 0;
function same(request, args, input) {
  const [failed, ours] = ask(request);
  const theirs = program([...args, "--json"], input);
  // Errors are prefixed with the file's name by the program; the sentence itself must be the same.
  const equal = failed ? theirs.includes(ours) : ours === theirs;
  compared += 1;
  if (!equal) {
    different += 1;
    if (different <= 5) console.error(`different: rung ${args.join(" ")}\n  page:    ${ours.slice(0, 400)}\n  program: ${theirs.slice(0, 400)}`);
  }
}

const [, names] = ask({ ask: "names" });
const { presets, engines } = JSON.parse(names);
for (const preset of presets) {
  const model = { preset };
  same({ ask: "audit", model }, ["audit", preset]);
  same({ ask: "audit", model, context: 32768, kv_dtype: "fp8", state_dtype: "bf16" }, ["audit", preset, "--context", "32768", "--kv-dtype", "fp8", "--state-dtype", "bf16"]);
  same({ ask: "what_if", model, edits: "every=4" }, ["audit", preset, "--what-if", "every=4"]);
  same({ ask: "lint", file: preset }, ["lint", preset]);
  same({ ask: "place", model, budget: "1GiB" }, ["place", preset, "--budget", "1GiB"]);
  for (const { name } of engines) {
    same({ ask: "plan", model, engine: name, on: "h100x2", context: 32768, requests: 4, weights: "20GB" }, ["plan", preset, "--engine", name, "--on", "h100x2", "--context", "32768", "--requests", "4", "--weights", "20GB"]);
  }
}
const stored = path.join(here, "../../rung-audit/tests/data");
for (const file of fs.readdirSync(stored).filter((name) => name.endsWith(".json"))) {
  const text = fs.readFileSync(path.join(stored, file), "utf8");
  same({ ask: "audit", model: { config: { text, name: "stdin" } } }, ["audit", "-"], text);
}
// Configs of transformers, one per line beside their measured caches.
for (const line of fs.readFileSync(path.join(stored, "transformers_caches.jsonl"), "utf8").split("\n").filter(Boolean)) {
  const { config } = JSON.parse(line);
  if (!config) continue;
  const text = JSON.stringify(config);
  same({ ask: "audit", model: { config: { text, name: "stdin" } } }, ["audit", "-"], text);
}
for (const text of ["full", "linear full linear full", "(gdn*3 full)*4", "full+mamba2 full", "window{size=64} full full", "no such"]) {
  const stack = { text, heads: 2, head_dim: 8, bits: 8 };
  const sizes = ["--heads", "2", "--head-dim", "8", "--bits", "8"];
  same({ ask: "capacity", stack }, ["capacity", text, ...sizes]);
  same({ ask: "map", stack, hops: 3 }, ["map", text, "--hops", "3", ...sizes]);
  for (const hops of [1, 2, 3]) {
    same({ ask: "bound", stack, hops }, ["bound", text, "--hops", String(hops), ...sizes]);
    const [failed, answer] = ask({ ask: "bound", stack, hops });
    const certificate = failed ? null : JSON.parse(answer).certificate;
    if (!certificate) continue;
    const file = JSON.stringify(certificate);
    same({ ask: "check", text: file }, ["check", "-"], file);
    same({ ask: "check", text: file, explain: true }, ["check", "-", "--explain"], file);
    const wrong = JSON.stringify({ ...certificate, m: "2" });
    same({ ask: "check", text: wrong }, ["check", "-"], wrong);
    same({ ask: "check", text: wrong, explain: true }, ["check", "-", "--explain"], wrong);
  }
}
console.log(`${compared} answers compared, ${different} different`);
process.exit(different === 0 && compared > 400 ? 0 : 1);
