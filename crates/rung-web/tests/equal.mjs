// Checks that the WebAssembly module and the program give the same answers, byte for byte, for all presets and stored configs.
// node equal.mjs PAGE-FOLDER RUNG-PROGRAM
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { call } from "../page/request.js";

const [folder, rung] = process.argv.slice(2);
const testFolder = path.dirname(fileURLToPath(import.meta.url));
const { instance } = await WebAssembly.instantiate(fs.readFileSync(path.join(folder, "rung.wasm")), {});
const ask = (request) => call(instance.exports, new TextEncoder().encode(JSON.stringify(request)), null);

/** The program's output; its exit code is not compared. */
function programOutput(args, input = "") {
  try {
    return execFileSync(rung, args, { input, encoding: "utf8", stdio: ["pipe", "pipe", "pipe"] });
  } catch (error) {
    return error.stdout || JSON.parse(error.stderr).error;
  }
}

let compared = 0;
let different = 0;
function compare(request, args, input) {
  const [failed, moduleAnswer] = ask(request);
  const programAnswer = programOutput([...args, "--json"], input);
  // Errors are prefixed with the file's name by the program; the message itself must be the same.
  const equal = failed ? programAnswer.includes(moduleAnswer) : moduleAnswer === programAnswer;
  compared += 1;
  if (!equal) {
    different += 1;
    if (different <= 5) console.error(`different: rung ${args.join(" ")}\n  page:    ${moduleAnswer.slice(0, 400)}\n  program: ${programAnswer.slice(0, 400)}`);
  }
}

const [, names] = ask({ ask: "names" });
const { presets, engines } = JSON.parse(names);
for (const preset of presets) {
  const model = { preset };
  compare({ ask: "audit", model }, ["audit", preset]);
  compare({ ask: "audit", model, context: 32768, kv_dtype: "fp8", state_dtype: "bf16" }, ["audit", preset, "--context", "32768", "--kv-dtype", "fp8", "--state-dtype", "bf16"]);
  compare({ ask: "what_if", model, edits: "every=4" }, ["audit", preset, "--what-if", "every=4"]);
  compare({ ask: "lint", file: preset }, ["lint", preset]);
  compare({ ask: "place", model, budget: "1GiB" }, ["place", preset, "--budget", "1GiB"]);
  for (const { name } of engines) {
    compare({ ask: "plan", model, engine: name, on: "h100x2", context: 32768, requests: 4, weights: "20GB" }, ["plan", preset, "--engine", name, "--on", "h100x2", "--context", "32768", "--requests", "4", "--weights", "20GB"]);
  }
}
const configFolder = path.join(testFolder, "../../rung-audit/tests/data");
for (const file of fs.readdirSync(configFolder).filter((name) => name.endsWith(".json"))) {
  const text = fs.readFileSync(path.join(configFolder, file), "utf8");
  compare({ ask: "audit", model: { config: { text, name: "stdin" } } }, ["audit", "-"], text);
}
// Configs of transformers, one per line beside their measured caches.
for (const line of fs.readFileSync(path.join(configFolder, "transformers_caches.jsonl"), "utf8").split("\n").filter(Boolean)) {
  const { config } = JSON.parse(line);
  if (!config) continue;
  const text = JSON.stringify(config);
  compare({ ask: "audit", model: { config: { text, name: "stdin" } } }, ["audit", "-"], text);
}
for (const text of ["full", "linear full linear full", "(gdn*3 full)*4", "full+mamba2 full", "window{size=64} full full", "no such"]) {
  const stack = { text, heads: 2, head_dim: 8, bits: 8 };
  const sizes = ["--heads", "2", "--head-dim", "8", "--bits", "8"];
  compare({ ask: "capacity", stack }, ["capacity", text, ...sizes]);
  compare({ ask: "map", stack, hops: 3 }, ["map", text, "--hops", "3", ...sizes]);
  for (const hops of [1, 2, 3]) {
    compare({ ask: "bound", stack, hops }, ["bound", text, "--hops", String(hops), ...sizes]);
    const [failed, answer] = ask({ ask: "bound", stack, hops });
    const certificate = failed ? null : JSON.parse(answer).certificate;
    if (!certificate) continue;
    const file = JSON.stringify(certificate);
    compare({ ask: "check", text: file }, ["check", "-"], file);
    compare({ ask: "check", text: file, explain: true }, ["check", "-", "--explain"], file);
    const wrong = JSON.stringify({ ...certificate, m: "2" });
    compare({ ask: "check", text: wrong }, ["check", "-"], wrong);
    compare({ ask: "check", text: wrong, explain: true }, ["check", "-", "--explain"], wrong);
  }
}
console.log(`${compared} answers compared, ${different} different`);
process.exit(different === 0 && compared > 400 ? 0 : 1);
