// A forward pass of a construction: step through its layers, see which token reads which and the register values after each
// layer, and change table entries to see the new answer. The weights are built and run in the browser.
import { button, h, labelled, s, select, show } from "./dom.js";
import { ask } from "./request.js";
import { commas, plural } from "./format.js";
import { figure } from "./chart.js";
import { commandLine, flags } from "./command.js";
import { formatAddress } from "./state.js";

export const title = "Forward pass";

const CONSTRUCTIONS = /** @type {[string, string, boolean][]} */ ([
  ["U1", "U1: full layers only", false], ["U2", "U2: a recurrent layer, then full layers", true], ["U2'", "U2': recurrent after the first full layer", true],
  ["U3", "U3: one full layer and chain of thought", false], ["U4-causal", "U4: pointer doubling", false], ["U6", "U6: recurrent, one full layer, chain of thought", true],
]);
const MIXERS = ["linear", "gdn", "mamba2", "deltanet", "rwkv7"];

/** @param {HTMLElement} root @param {Record<string, string>} values */
export async function render(root, values) {
  const state = {
    construction: values.construction ?? "U2", hops: Number(values.hops) || 2, m: Number(values.m) || 3, mixer: values.mixer ?? "linear", seed: Number(values.seed) || 0,
    /** @type {number[] | null} */ tokens: values.tokens ? values.tokens.split(".").map(Number) : null,
  };
  let step = Number(values.step) || 0;
  let selected = -1;
  let timer = 0;
  /** @type {any} */
  let run = null;
  const plot = h("div", {});
  const side = h("div", {});
  const controls = h("div", { class: "row tools" });
  const settings = h("div", { class: "row sizes" });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const needsMixer = () => CONSTRUCTIONS.find(([name]) => name === state.construction)?.[2] ?? false;

  async function load() {
    const n = Array(state.hops - 1).fill(2);
    try {
      run = await ask({ ask: "pass", construction: state.construction, hops: state.hops, m: state.m, n, mixer: needsMixer() ? state.mixer : null, seed: state.seed, tokens: state.tokens });
      problem.hidden = true;
    } catch (error) {
      problem.textContent = error instanceof Error ? error.message : String(error);
      problem.hidden = false;
      if (!run) return;
    }
    step = Math.min(step, run.layers.length);
    selected = selected >= 0 && selected < run.names.length ? selected : run.position;
    draw();
  }

  function updateAddress() {
    history.replaceState(null, "", formatAddress("pass", { construction: state.construction, hops: state.hops, m: state.m, mixer: needsMixer() ? state.mixer : "", seed: state.seed || "", tokens: state.tokens?.join("."), step: step || "" }));
  }

  function draw() {
    updateAddress();
    drawSettings();
    show(controls,
      button("Start", () => goTo(0), { "aria-label": "Start: to the embedding" }), button("◀ Back", () => goTo(step - 1), { id: "back", disabled: step === 0 }),
      button(timer ? "⏸ Pause" : "▶ Play", play, { id: "play" }), button("Next ▶", () => goTo(step + 1), { id: "next", class: "primary", disabled: step === run.layers.length }),
      h("span", { class: "step", role: "status" }, step === 0 ? "Tokens as embedded" : `After layer ${step - 1} (${run.layers[step - 1].mixers})${run.layers[step - 1].about ? `: ${run.layers[step - 1].about}` : ""}`));
    show(plot, figure(passChart(run, step, selected, (index) => { selected = index; draw(); }), `pass-${run.construction}`, "Each row is the sequence after one layer. Arcs are reads, thicker for a larger share. Select a token to see its registers and, for a table entry, to change it."));
    drawSide();
  }

  function drawSettings() {
    if (settings.contains(document.activeElement)) return;
    const change = (/** @type {string} */ name, /** @type {any} */ value) => { /** @type {any} */ (state)[name] = value; state.tokens = null; selected = -1; step = 0; void load(); };
    show(settings,
      labelled("Construction", select(state.construction, CONSTRUCTIONS.map(([name, text]) => /** @type {[string, string]} */ ([name, text])), (value) => change("construction", value), { id: "construction" })),
      labelled("Hops", select(state.hops, ["1", "2", "3", "4"], (value) => change("hops", Number(value)), { id: "hops" })),
      labelled("Entries of the first table", select(state.m, ["2", "3", "4"], (value) => change("m", Number(value)))),
      needsMixer() && labelled("Recurrent layer", select(state.mixer, MIXERS, (value) => change("mixer", value), { id: "mixer" })),
      button("Other tables", () => change("seed", state.seed + 1), { id: "other" }));
  }

  function drawSide() {
    const fields = run.fields.length;
    const token = run.tokens.slice(selected * fields, (selected + 1) * fields);
    const isEntry = /=\d+$/.test(run.names[selected]) && selected < run.prompt_tokens && /^z/.test(run.names[selected]);
    const values = step === 0 ? run.embedded : run.layers[step - 1].held;
    const previousValues = step === 0 ? null : step === 1 ? run.embedded : run.layers[step - 2].held;
    const rows = run.registers.map((/** @type {any} */ register, /** @type {number} */ index) => ({ ...register, value: values[selected][index], fresh: previousValues && previousValues[selected][index] === null && values[selected][index] !== null })).filter((/** @type {any} */ register) => register.value !== null);
    // Field 3 of a token is the value of its table entry.
    const entryControl = isEntry && labelled(`Change ${run.names[selected].split("=")[0]} to`, select(token[3], Array.from({ length: valueCount(run, selected) }, (_, id) => String(id)), (text) => {
      const tokens = [...run.prompt];
      tokens[selected * fields + 3] = Number(text);
      state.tokens = tokens;
      void load();
    }, { id: "entry" }));
    const isCorrect = run.answer === run.expected;
    show(side,
      h("p", { class: "answer", role: "status" }, "Answer: ", h("strong", { id: "answer" }, run.answer), ` (${isCorrect ? "✓ as the oracle says" : `the oracle says ${run.expected}`})`),
      h("h3", {}, `Token ${selected}: ${run.names[selected]}`), entryControl,
      h("table", {}, h("caption", { class: "muted" }, "Registers that hold something"), h("tbody", {}, rows.length === 0 ? h("tr", {}, h("td", {}, "none")) : rows.map((/** @type {any} */ register) => h("tr", { class: register.fresh ? "fresh" : "" }, h("th", { scope: "row" }, h("code", {}, register.name)), h("td", { class: "number" }, String(register.value)), h("td", { class: "muted" }, `${register.fresh ? "new: " : ""}${register.about}`))))));
  }

  /** @param {number} next */
  function goTo(next) {
    step = Math.max(0, Math.min(run.layers.length, next));
    draw();
  }

  function play() {
    if (timer) {
      clearInterval(timer);
      timer = 0;
      return draw();
    }
    if (step === run.layers.length) step = 0;
    timer = window.setInterval(() => {
      if (step >= run.layers.length) {
        clearInterval(timer);
        timer = 0;
        return draw();
      }
      goTo(step + 1);
    }, 1200);
    draw();
  }

  show(root, h("h1", {}, "A forward pass, step by step"),
    h("p", { class: "intro" }, "The task: start at z0, look it up in table z1, look the result up in z2, and so on. These weights were written down, not trained, and run in your browser."),
    h("section", { class: "panel" }, settings, problem),
    h("section", { class: "panel pass-stage", "aria-label": "The pass" }, controls, h("div", { class: "pass-grid" }, plot, side)));
  await load();
  if (run) {
    root.append(h("section", { class: "panel" }, h("p", {}, `${run.construction} for `, h("code", {}, run.task), `: stack ${run.stack}, width ${commas(run.width)}, ${plural(run.weights, "weight")}.`),
      commandLine(`rung construct ${state.construction}${flags({ hops: state.hops, m: state.m, n: Array(state.hops - 1).fill(2).join(","), mixer: needsMixer() ? state.mixer : "", out: "built" })} && rung trace built`)));
  }
  return () => clearInterval(timer);
}

/** The number of values offered for an entry: one more than the largest in its table. @param {any} run @param {number} selected */
function valueCount(run, selected) {
  const fields = run.fields.length;
  const table = run.tokens[selected * fields];
  let max = 0;
  for (let token = 0; token < run.prompt_tokens; token++) if (run.tokens[token * fields] === table) max = Math.max(max, run.tokens[token * fields + 3]);
  return max + 1;
}

/**
 * The chart of a pass: one row of tokens per layer, with arcs for reads.
 * @param {any} run @param {number} step @param {number} selected @param {(index: number) => void} choose
 */
function passChart(run, step, selected, choose) {
  const count = run.names.length;
  const cell = Math.max(58, Math.min(96, 1000 / count));
  const [width, rowHeight] = [count * cell + 90, 92];
  const rows = run.layers.length + 1;
  const height = rows * rowHeight + 30;
  const x = (/** @type {number} */ token) => 80 + token * cell + cell / 2;
  const y = (/** @type {number} */ level) => 30 + level * rowHeight;
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart pass-chart", role: "group", "aria-label": `Forward pass of ${run.construction}, ${count} tokens, ${run.layers.length} layers` });
  run.layers.slice(0, step).forEach((/** @type {any} */ layer, /** @type {number} */ index) => {
    for (const read of layer.reads) {
      const [x1, x2, y1, y2] = [x(read.from), x(read.to), y(index) + 30, y(index + 1) - 4];
      svg.append(s("path", { class: `read ${read.through}${index === step - 1 ? " now" : ""}`, "stroke-width": 0.8 + 4 * read.share, d: `M${x1} ${y1}C${x1} ${y1 + 34} ${x2} ${y2 - 34} ${x2} ${y2}` },
        s("title", {}, `${run.names[read.to]} reads ${run.names[read.from]} through ${read.through}, ${(100 * read.share).toFixed(0)}%`)));
    }
  });
  for (let level = 0; level < rows; level++) {
    const isShown = level <= step;
    svg.append(s("text", { class: "row-name", x: 4, y: y(level) + 18, opacity: isShown ? 1 : 0.35 }, level === 0 ? "embedded" : `layer ${level - 1}`));
    if (level > 0) svg.append(s("text", { class: "mixer-name", x: 4, y: y(level) + 33, opacity: isShown ? 1 : 0.35 }, run.layers[level - 1].mixers));
    const values = level === 0 ? run.embedded : run.layers[level - 1].held;
    const previousValues = level === 0 ? null : level === 1 ? run.embedded : run.layers[level - 2].held;
    for (let token = 0; token < count; token++) {
      const fresh = previousValues ? run.registers.map((/** @type {any} */ register, /** @type {number} */ index) => (!register.raw && previousValues[token][index] === null && values[token][index] !== null ? `${register.name}=${values[token][index]}` : "")).filter(Boolean) : [];
      const isSelectable = level === 0;
      const box = s("g", { class: `token${token === selected ? " chosen" : ""}${token === run.position ? " answering" : ""}${isShown ? "" : " later"}${fresh.length && isShown ? " fresh" : ""}`, ...(isSelectable ? { role: "button", tabindex: 0, "aria-label": `Token ${token}: ${run.names[token]}`, "aria-pressed": String(token === selected), onkeydown: (/** @type {any} */ event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(token); } } } : {}), onclick: () => choose(token) },
        s("rect", { x: x(token) - cell / 2 + 2, y: y(level), width: cell - 4, height: 26, rx: 5 }),
        s("text", { x: x(token), y: y(level) + 17, "text-anchor": "middle", "font-size": cell < 70 ? 10 : 12 }, level === 0 ? run.names[token] : isShown && fresh.length ? fresh[0].slice(0, 12) : ""));
      if (fresh.length > 0) box.append(s("title", {}, `${run.names[token]} now holds ${fresh.join(", ")}`));
      svg.append(box);
    }
  }
  return svg;
}
