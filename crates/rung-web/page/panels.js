// The panels that the designer shows below the layers.
import { h, s, show } from "./dom.js";
import { Stopped, ask } from "./request.js";
import { ratioText, bytes, commas, counts, plural, power, rungs, signed, tokens } from "./format.js";
import { figure, frame, path, spread } from "./chart.js";
import { commandButton, flags, sizeFlags } from "./command.js";
import { quote } from "./format.js";
/** @typedef {import("./state.js").Model} Model */

/** A badge that says how a number is known. @param {"proved" | "constructed" | "counted" | "unknown"} kind @param {string} [text] */
export function evidence(kind, text = kind) {
  return h("span", { class: `evidence ${kind}` }, text);
}

/** @param {string} title @param {any[]} children @param {string} [name] */
function panel(title, children, name = "") {
  return h("section", { class: `panel ${name}`, "aria-label": title }, h("h2", {}, title), children);
}

/** @param {any} answer */
export function rungsPanel(answer) {
  const { after } = answer;
  if (after.rungs === null) {
    return panel("Rungs", [h("p", { class: "big-number" }, "unknown"), h("p", {}, "Not every layer could be read, so nothing is counted. Below it says which, and why.")], "rungs");
  }
  const exact = after.rungs_at_least === after.rungs;
  return panel("Rungs", [
    h("p", { class: "big-number", id: "rungs", "aria-live": "polite" }, rungs(after.rungs, after.rungs_at_least)),
    h("p", {}, `${answer.claim} in one forward pass, for large tables `, exact ? evidence("proved", "proved both ways") : [evidence("proved", "at most: proved"), " ", evidence("constructed", "at least: constructed")]),
    h("p", { class: "sum" }, answer.rungs_terms, after.all_full && h("span", { class: "muted" }, ` · all full would have ${after.all_full.rungs}`)),
    h("p", { class: "reason" }, answer.reason)], "rungs");
}

/** A sentence that compares the cache with that of full attention in every layer. @param {number} value @param {number} allFull */
function allFullComparison(value, allFull) {
  const ratio = h("strong", {}, ratioText(value, allFull));
  if (value === allFull) return ["The cache is ", ratio, ` to that with full attention in every layer (${bytes(allFull)}).`];
  if (value === 0 || allFull === 0) return ["There is a cache ", ratio, ` (${bytes(Math.max(value, allFull))}).`];
  return [ratio, ` cache than with full attention in every layer (${bytes(allFull)}).`];
}

/** @param {any} answer @param {string} edits */
export function differencePanel(answer, edits) {
  const { before, after, difference } = answer;
  /** @type {[string, string, (n: number) => string, boolean][]} */
  const rows = [
    ["rungs", "Rungs", commas, true], ["full_layers", "Full layers", commas, true], ["bytes_per_token", "KV cache per token", bytes, false],
    ["window_bytes", "Windows", bytes, false], ["state_bytes", "Recurrent state", bytes, false], ["cache_bytes", `All caches at ${tokens(after.context)}`, bytes, false],
  ];
  const change = (/** @type {string} */ name, /** @type {(n: number) => string} */ format, /** @type {boolean} */ moreIsBetter) => {
    const value = difference?.[name];
    if (value === null || value === undefined) return h("td", {}, "");
    const quality = value === 0 ? "" : value > 0 === moreIsBetter ? "better" : "worse";
    return h("td", { class: `number ${quality}` }, value === 0 ? "±0" : `${value > 0 ? "▲" : "▼"} ${signed(value, format)}`);
  };
  return panel("Cost", [
    h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, ""), h("th", { scope: "col", class: "number" }, "now"), h("th", { scope: "col", class: "number" }, "start"), h("th", { scope: "col", class: "number" }, "change"))),
      h("tbody", {}, rows.map(([name, text, format, moreIsBetter]) => h("tr", {}, h("th", { scope: "row" }, text),
        h("td", { class: "number", id: `now-${name}` }, after[name] === null ? "unknown" : format(after[name])), h("td", { class: "number muted" }, before[name] === null ? "unknown" : format(before[name])), change(name, format, moreIsBetter))))),
    after.all_full && after.cache_bytes !== null && h("p", {}, allFullComparison(after.cache_bytes, after.all_full.cache.cache_bytes), " ", evidence("counted", "counted from the config")),
    h("p", { class: "muted" }, edits ? ["Edits: ", h("code", {}, edits)] : "No edits yet: click a layer above.")], "cost");
}

/** @param {any} answer @param {number} context */
export function curvePanel(answer, context) {
  return panel("Cache against context", [figure(curveChart([{ name: "this design", curve: answer.curve.map((/** @type {any} */ point) => [point.context, point.after]) },
    { name: "start", curve: answer.curve.map((/** @type {any} */ point) => [point.context, point.before]) },
    { name: "all full", curve: answer.curve.map((/** @type {any} */ point) => [point.context, point.all_full]) }], context), `${answer.after.model}-cache`,
  "KV cache, windows and recurrent state of one request. Dashed: memory of GPUs, of which weights take a part.")], "curve");
}

const GPUS = /** @type {[string, number][]} */ ([["RTX 4090", 24], ["L40S", 48], ["H100", 80], ["H200", 141]]);
const GIB = 2 ** 30;

/** @param {{ name: string, curve: [number, number | null][] }[]} lines @param {number} context */
export function curveChart(lines, context) {
  const points = lines.flatMap((line) => line.curve).filter(([, value]) => value !== null && value > 0);
  const [xs, ys] = [points.map(([x]) => x), points.map(([, y]) => Number(y))];
  const x = { log: true, from: Math.min(...xs), to: Math.max(...xs), label: "context, tokens", format: tokens, ticks: [2 ** 10, 2 ** 12, 2 ** 14, 2 ** 16, 2 ** 18, 2 ** 20, 2 ** 22] };
  const y = { log: true, from: Math.min(...ys) / 1.5, to: Math.max(160 * GIB, ...ys) * 1.3, label: "bytes", format: bytes };
  const { svg, toX, toY, left, right, top, bottom, width, height } = frame(x, y, { title: "Cache against context", right: 110 });
  GPUS.forEach(([name, gib], index) => {
    const y = toY(gib * GIB);
    // Names alternate between two columns, because the lines are close to each other.
    if (y >= top) svg.append(s("line", { class: "gpu", x1: left, x2: width - right, y1: y, y2: y }), s("text", { class: "gpu-name", x: left + 6 + (index % 2) * 110, y: y - 3 }, `${name} ${gib} GiB`));
  });
  if (context >= x.from && context <= x.to) svg.append(s("line", { class: "here", x1: toX(context), x2: toX(context), y1: top, y2: height - bottom }));
  const ends = lines.map((line) => line.curve.filter(([, value]) => value !== null && value > 0).at(-1)).map((end) => (end ? toY(Number(end[1])) : 0));
  const labelPositions = spread(ends, 15, height - bottom);
  lines.forEach((line, index) => {
    const linePoints = /** @type {[number, number][]} */ (line.curve.filter(([, value]) => value !== null && value > 0).map(([tokenCount, value]) => [toX(tokenCount), toY(Number(value))]));
    if (linePoints.length === 0) return;
    svg.append(s("path", { class: `line line-${index}`, d: path(linePoints) }), s("text", { class: `line-name line-${index}`, x: width - right + 6, y: labelPositions[index] + 4 }, line.name));
    const now = line.curve.find(([tokenCount]) => tokenCount === context);
    if (now?.[1]) svg.append(s("circle", { class: `mark line-${index}`, cx: toX(context), cy: toY(now[1]), r: 4 }, s("title", {}, `${line.name}: ${bytes(now[1])} at ${tokens(context)}`)));
  });
  return svg;
}

/** @param {any} answer */
export function flopsPanel(answer) {
  const { after, before } = answer;
  const allFull = after.all_full?.mixers;
  const row = (/** @type {string} */ text, /** @type {string} */ name) => {
    const [now, start, full] = [after.mixers[name], before.mixers?.[name], allFull?.[name]];
    const max = Math.max(now, start ?? 0, full ?? 0) || 1;
    const bar = (/** @type {string} */ who, /** @type {number | undefined} */ value, /** @type {string} */ kind) => value !== undefined && value !== null && h("tr", {}, h("th", { scope: "row" }, who),
      h("td", { class: "bar" }, h("meter", { min: 0, max, value, class: kind, "aria-label": `${text}, ${who}` })), h("td", { class: "number" }, counts(value)));
    return h("table", { class: "bars" }, h("caption", {}, text), h("tbody", {}, bar("now", now, "now"), bar("start", start, "start"), bar("all full", full, "full")));
  };
  return panel("Arithmetic of the mixers", [
    row(`Prefill FLOPs per token, averaged over ${tokens(after.context)}`, "prefill_flops_per_token"),
    row(`Decode FLOPs for the token after ${tokens(after.context)}`, "decode_flops_per_token"),
    row("Weights of the mixers", "parameters"),
    h("p", { class: "muted" }, "Token mixers only: feed-forward parts and embeddings do not change with the layout. ", evidence("counted"))], "work");
}

/** Milliseconds without a change before a search starts. */
const SEARCH_DELAY = 250;

/** The numbers of hops that the map shows: those around the rungs. @param {number} rungs @param {number} max */
function rowsAround(rungs, max) {
  const last = rungs + 1 <= max ? Math.max(rungs + 1, Math.min(3, max)) : rungs;
  const first = Math.max(1, Math.min(last - 3, rungs - 1));
  return Array.from({ length: last - first + 1 }, (_, index) => first + index);
}

/**
 * The hop map, filled in by a worker row by row.
 * @param {any} answer @param {import("./request.js").Searcher} search @param {{ model: Model, edits: string }} design @param {Uint8Array | null} file
 */
export function hopMapPanel(answer, search, design, file) {
  const { after } = answer;
  search.stop();
  const MAX_HOPS = 8;
  const hops = rowsAround(after.rungs, MAX_HOPS);
  /** @type {Map<number, any>} */
  const rows = new Map();
  const body = h("div", {});
  const note = h("p", { class: "muted", role: "status" });
  const redraw = () => show(body, figure(hopMapChart(hops, rows, after.context), `${after.model}-hop-map`,
    "Solved: a construction fits, for all tables of that many tokens. Impossible: for some tables of that size, whatever the weights. Between them: unknown."));
  redraw();
  note.textContent = "Searching for certificates …";
  void (async () => {
    // Waits a moment, so that no search starts while layers are still being painted.
    try {
      await search.pause(SEARCH_DELAY);
    } catch {
      return;
    }
    const started = performance.now();
    for (const count of [...hops].sort((a, b) => a - b)) {
      try {
        rows.set(count, await search.ask({ ask: "rung", ...design, hops: count }, file));
      } catch (error) {
        if (error instanceof Stopped) return;
        rows.set(count, { problem: error instanceof Error ? error.message : String(error) });
      }
      redraw();
    }
    const beyond = after.rungs + 1 > MAX_HOPS ? ` ${plural(after.rungs + 1, "hop")}: not searched here, as the search takes too long beyond ${MAX_HOPS}.` : "";
    note.textContent = `Searched in ${((performance.now() - started) / 1000).toFixed(1)} s.${beyond}`;
    note.dataset.finished = "yes";
  })();
  const command = "stack" in design.model && !design.edits ? `rung map ${quote(design.model.stack.text)} --hops ${Math.min(MAX_HOPS, after.rungs + 1)}${sizeFlags(design.model.stack)}` : `rung map ${quote(answer.explicit_stack ?? "")} --hops ${Math.min(MAX_HOPS, after.rungs + 1)}${flags({ width: after.width })}`;
  return panel("Hop map", [body, h("div", { class: "row spread" }, note, commandButton(() => command))], "map");
}

/** @param {number[]} hops @param {Map<number, any>} rows @param {number} context */
export function hopMapChart(hops, rows, context) {
  const certified = [...rows.values()].map((row) => row.impossible_some_from_log2_tokens ?? 0);
  const to = Math.max(40, Math.ceil(Math.max(...certified) * 1.15));
  const height = 70 + hops.length * 46;
  const x = { from: 0, to, label: "prompt length, tokens (powers of two)", format: (/** @type {number} */ value) => `2^${value}` };
  const y = { from: 0, to: hops.length, label: "", ticks: [] };
  const { svg, toX, left, top, bottom } = frame(x, y, { title: "Hop map: solved, unknown, impossible", height, left: 70 });
  svg.prepend(s("defs", {}, s("pattern", { id: "unknown", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, s("rect", { class: "band unknown-back", width: 7, height: 7 }), s("line", { class: "hatch", x1: 0, x2: 0, y1: 0, y2: 7 }))));
  hops.forEach((count, index) => {
    const rowTop = top + (hops.length - 1 - index) * 46 + 6;
    svg.append(s("text", { class: "row-name", x: left - 8, y: rowTop + 22, "text-anchor": "end" }, plural(count, "hop")));
    const row = rows.get(count);
    const band = (/** @type {number} */ from, /** @type {number} */ end, /** @type {string} */ kind, /** @type {string} */ text) => {
      const [x1, x2] = [toX(Math.max(0, from)), toX(Math.min(to, end))];
      if (x2 - x1 < 1) return;
      svg.append(s("rect", { class: `band ${kind}`, x: x1, y: rowTop, width: x2 - x1, height: 34, fill: kind === "unknown" ? "url(#unknown)" : null }, s("title", {}, text)));
      const caption = text.length * 6.3 < x2 - x1 - 8 ? text : kind.length * 6.6 < x2 - x1 - 8 ? kind : "";
      if (caption) svg.append(s("text", { class: `band-name ${kind}`, x: (x1 + x2) / 2, y: rowTop + 21, "text-anchor": "middle" }, caption));
    };
    if (!row) return band(0, to, "unknown", "searching …");
    if (row.problem) return band(0, to, "unknown", "unknown: not searched");
    const solved = Math.min(to, row.solved_all_up_to_log2_tokens ?? 0);
    const from = row.impossible_some_from_log2_tokens;
    if (solved > 0) band(0, solved, "solved", `solved (${row.construction}) up to ${solved >= to ? "any length shown" : power(solved)}`);
    band(solved, from ?? to, "unknown", "unknown");
    if (from !== null && from !== undefined) band(from, to, "impossible", `impossible from ${power(from)}`);
  });
  const contextLog2 = Math.log2(context);
  svg.append(s("line", { class: "here", x1: toX(contextLog2), x2: toX(contextLog2), y1: top, y2: height - bottom }), s("text", { class: "here-name", x: toX(contextLog2) + 4, y: top + 2 }, `${tokens(context)}`));
  return svg;
}

/** The panel on how the config was read: deciding fields, assumptions, lint findings. @param {any} answer @param {Model} model */
export function configPanel(answer, model) {
  const { after } = answer;
  const fields = new Map();
  for (const layer of answer.before.layers) {
    const field = layer.decided_by.replaceAll(/\[\d+\]/g, "[]");
    fields.set(field, (fields.get(field) ?? 0) + 1);
  }
  const lint = h("div", {});
  void (async () => {
    const request = "preset" in model ? { ask: "lint", file: model.preset } : "config" in model ? { ask: "lint", text: model.config.text, file: model.config.name } : null;
    if (!request) return;
    try {
      const { findings } = await ask(request);
      show(lint, h("h3", {}, "Lint"), findings.length === 0 ? h("p", {}, "No findings: no contradiction and no likely mistake.")
        : h("ul", { class: "findings" }, findings.map((/** @type {any} */ finding) => h("li", { class: finding.severity }, h("strong", {}, `${finding.severity}${finding.line ? `, line ${finding.line}` : ""}: `), h("code", {}, finding.field), ` ${finding.reason}. Fix: ${finding.fix}`))));
    } catch (error) {
      show(lint, h("p", { class: "problem" }, error instanceof Error ? error.message : String(error)));
    }
  })();
  return panel("How it was read", [
    after.unknown.length > 0 && [h("h3", {}, "Unknown"), h("ul", { class: "unknown-list" }, after.unknown.map((/** @type {string} */ text) => h("li", {}, text)))],
    h("h3", {}, "Decided by"), h("ul", {}, [...fields].map(([field, count]) => h("li", {}, h("code", {}, field || "nothing"), ` (${plural(count, "layer")})`))),
    after.assumed.length > 0 && [h("h3", {}, "Assumed"), h("ul", {}, after.assumed.map((/** @type {string} */ text) => h("li", {}, text)))], lint], "reading");
}
