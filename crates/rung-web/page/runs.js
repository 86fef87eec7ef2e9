// Training runs of a folder, updated while they train; only under `rung serve FOLDER`.
import { button, h, labelled, s, select, show } from "./dom.js";
import { commas, plural } from "./format.js";
import { figure, frame, path } from "./chart.js";
import { commandLine } from "./command.js";
import { quote } from "./format.js";
import { formatAddress } from "./state.js";

export const title = "Runs";

/** Table rows drawn at first, so that ten thousand runs do not slow the page down; a button shows more. */
const PAGE_ROWS = 100;
const MAX_COMPARED = 4;

/** @param {HTMLElement} root @param {Record<string, string>} values */
export async function render(root, values) {
  if (document.documentElement.dataset.runs !== "yes") {
    show(root, h("h1", {}, "Runs"), h("p", {}, "This view shows the training runs of a folder. Start it with:"), commandLine("rung serve runs/"));
    return;
  }
  /** @type {Map<string, any>} */
  const runs = new Map();
  let version = 0;
  let rowLimit = PAGE_ROWS;
  const state = { search: values.search ?? "", sort: values.sort ?? "name", hops: values.hops ?? "" };
  /** @type {string[]} */
  let openRuns = (values.open ?? "").split("|").filter((name) => name !== "");
  const table = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Runs" });
  const count = h("p", { class: "count", role: "status" });
  const detail = h("div", {});

  /** @param {any} run */
  const groups = (run) => Object.entries(run.accuracy ?? {});
  /** @param {any} run */
  const bestAccuracy = (run) => Math.max(-1, ...groups(run).map(([, accuracy]) => Number(accuracy)));
  const SORTS = /** @type {Record<string, [string, (run: any) => any]>} */ ({
    name: ["Name", (run) => run.name], accuracy: ["Accuracy, best first", (run) => -bestAccuracy(run)], loss: ["Loss, least first", (run) => run.loss ?? Infinity],
    rungs: ["Rungs, most first", (run) => -(run.rungs ?? -1)], newest: ["Newest first", (run) => -run.order],
  });

  /** Fetches the runs that changed since the last call, and returns their names. */
  async function poll() {
    const response = await fetch(`runs/list?since=${version}`);
    if (!response.ok) throw new Error(`the server answers ${response.status}`);
    const answer = await response.json();
    version = answer.version;
    for (const run of answer.runs) runs.set(run.name, { ...run, order: version, words: `${run.id ?? ""} ${run.name} ${run.stack ?? ""} ${run.task ?? ""} ${run.over ?? ""}`.toLowerCase() });
    return /** @type {string[]} */ (answer.runs.map((/** @type {any} */ run) => run.name));
  }

  function draw() {
    const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
    const key = (SORTS[state.sort] ?? SORTS.name)[1];
    const visibleRuns = [...runs.values()].filter((run) => words.every((word) => run.words.includes(word)) && (!state.hops || String(run.hops) === state.hops));
    const runsByKey = visibleRuns.map((run) => /** @type {[any, any]} */ ([key(run), run])).sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0));
    const running = visibleRuns.filter((run) => run.state === "running").length;
    count.textContent = `${commas(visibleRuns.length)} of ${plural(runs.size, "run")}${running ? `, ${running} not finished` : ""}`;
    show(table, h("table", {}, h("thead", {}, h("tr", {}, ["", "run", "stack", "task", "rungs", "steps", "loss", "accuracy per hop"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, runsByKey.slice(0, rowLimit).map(([, run]) => h("tr", { class: run.state },
        h("td", {}, h("input", { type: "checkbox", checked: openRuns.includes(run.name), "aria-label": `Show ${run.id ?? run.name}`, onchange: (/** @type {any} */ event) => toggle(run.name, event.target.checked) })),
        h("th", { scope: "row" }, run.id ?? run.name, run.state === "running" && " (not finished)"), h("td", {}, h("code", {}, run.stack ?? "")), h("td", {}, run.task ?? ""), h("td", { class: "number" }, run.rungs ?? ""), h("td", { class: "number" }, run.steps ? commas(run.steps) : ""), h("td", { class: "number" }, run.loss?.toFixed?.(4) ?? ""),
        h("td", {}, groups(run).map(([group, accuracy]) => h("span", { class: "group" }, `${group}: ${(100 * Number(accuracy)).toFixed(1)}% `))))))),
    runsByKey.length > rowLimit && button(`Show ${Math.min(PAGE_ROWS * 5, runsByKey.length - rowLimit)} more`, () => { rowLimit += PAGE_ROWS * 5; draw(); }, { id: "more" }));
    history.replaceState(null, "", formatAddress("runs", { ...state, sort: state.sort === "name" ? "" : state.sort, open: openRuns.join("|") }));
  }

  /** Opens or closes the curves of a run. @param {string} name @param {boolean} isOpen */
  function toggle(name, isOpen) {
    openRuns = isOpen ? [...openRuns.filter((other) => other !== name), name].slice(-MAX_COMPARED) : openRuns.filter((other) => other !== name);
    draw();
    void drawDetail();
  }

  async function drawDetail() {
    const unfinishedMark = (/** @type {string} */ name) => runs.get(name)?.state === "running" ? " (not finished)" : "";
    const records = (await Promise.all(openRuns.map(async (name) => {
      const response = await fetch(`runs/record?name=${encodeURIComponent(name)}`);
      return response.ok ? { name, record: await response.json() } : null;
    }))).filter((record) => record !== null);
    show(detail, records.length > 0 && h("section", { class: "panel", "aria-label": "Curves" }, h("h2", {}, records.length === 1 ? `${records[0].record.id}${unfinishedMark(records[0].name)}` : `${records.length} runs`),
      figure(curves(records.map(({ record }) => record)), "runs", "Accuracy of each hop while training. One colour per run, one dash pattern per hop."),
      records.map(({ name, record }) => h("details", { open: records.length === 1 }, h("summary", {}, record.id, unfinishedMark(name)), commandLine(`rung train --config ${quote(`${name || "."}/run.toml`)}`), h("pre", { tabindex: 0, class: "record" }, JSON.stringify({ ...record, looks: undefined, evaluations: `${(record.looks ?? record.evaluations ?? []).length} evaluations` }, null, 2))))));
  }

  await poll();
  const hops = [...new Set([...runs.values()].map((run) => run.hops).filter((n) => n !== null && n !== undefined))].sort((a, b) => a - b);
  show(root, h("h1", {}, "Training runs"),
    h("div", { class: "filters" },
      labelled("Filter", h("input", { type: "search", id: "filter", value: state.search, placeholder: "stack, task, name", oninput: (/** @type {any} */ event) => { state.search = event.target.value; rowLimit = PAGE_ROWS; draw(); } })),
      labelled("Hops of the task", select(state.hops, [["", "any"], ...hops.map((n) => /** @type {[string, string]} */ ([String(n), String(n)]))], (value) => { state.hops = value; draw(); })),
      labelled("Sort", select(state.sort, Object.entries(SORTS).map(([name, [text]]) => /** @type {[string, string]} */ ([name, text])), (value) => { state.sort = value; draw(); }))),
    count, detail, h("section", { class: "panel" }, table));
  draw();
  await drawDetail();
  const timer = setInterval(() => void poll().then((changedNames) => {
    if (changedNames.length > 0) draw();
    // Redraws the curves if an open run has a new evaluation.
    if (changedNames.some((name) => openRuns.includes(name))) void drawDetail();
  }).catch(() => { count.textContent = "The server does not answer any more."; }), 2000);
  return () => clearInterval(timer);
}

/** The chart of accuracy against training steps. @param {any[]} records */
function curves(records) {
  const evaluations = records.map((record) => record.looks ?? record.evaluations ?? []);
  const maxStep = Math.max(1, ...evaluations.flat().map((/** @type {any} */ evaluation) => evaluation.step));
  const { svg, toX, toY, width, right } = frame({ from: 0, to: maxStep, label: "training steps", format: (value) => commas(value) }, { from: 0, to: 1, label: "accuracy", ticks: [0, 0.25, 0.5, 0.75, 1], format: (value) => `${100 * value}%` }, { title: "Accuracy while training", right: 90, width: 900 });
  evaluations.forEach((list, index) => {
    const groups = [...new Set(list.flatMap((/** @type {any} */ evaluation) => Object.keys(evaluation.accuracy ?? {})))];
    for (const group of groups) {
      const points = list.filter((/** @type {any} */ evaluation) => evaluation.accuracy?.[group]?.count > 0).map((/** @type {any} */ evaluation) => /** @type {[number, number]} */ ([toX(evaluation.step), toY(evaluation.accuracy[group].right / evaluation.accuracy[group].count)]));
      if (points.length === 0) continue;
      svg.append(s("path", { class: `run-line line-${index % 4}`, "stroke-dasharray": ["", "7 3", "2 3", "9 3 2 3"][Number(group) % 4], d: path(points) }, s("title", {}, `${records[index].id}, hop ${group}`)));
      const [, y] = points[points.length - 1];
      svg.append(s("text", { class: `line-name line-${index % 4}`, x: width - right + 6, y: y + 4 + index * 2 }, `hop ${group}`));
    }
  });
  return svg;
}
