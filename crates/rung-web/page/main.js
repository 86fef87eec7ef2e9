// The frame: navigation, theme, the view that the address names.
import { announce, button, copy, h, show } from "./dom.js";
import { read } from "./state.js";
import * as gallery from "./gallery.js";
import * as designer from "./designer.js";
import * as compare from "./compare.js";
import * as certificate from "./certificate.js";
import * as pass from "./pass.js";
import * as learn from "./learn.js";
import * as runs from "./runs.js";

/** @type {Record<string, { title: string, render: (root: HTMLElement, values: Record<string, string>) => Promise<void | (() => void)> }>} */
const views = { gallery, designer, compare, certificate, pass, learn, runs };
const root = /** @type {HTMLElement} */ (document.getElementById("view"));
const nav = /** @type {HTMLElement} */ (document.querySelector("nav"));
/** @type {void | (() => void)} */
let leave;
let visit = 0;

function theme() {
  const stored = localStorage.getItem("theme");
  if (stored) document.documentElement.dataset.theme = stored;
  document.getElementById("theme")?.addEventListener("click", () => {
    const dark = document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", document.documentElement.dataset.theme);
  });
}

function navigation() {
  const names = Object.keys(views).filter((name) => name !== "runs" || document.documentElement.dataset.runs === "yes");
  show(nav, names.map((name) => h("a", { href: `#/1/${name}`, "data-view": name }, views[name].title)),
    button("Copy link", () => void copy(location.href, "Link"), { id: "copy-link", class: "quiet" }));
}

async function go() {
  const here = ++visit;
  const place = read(location.hash);
  if (typeof leave === "function") leave();
  leave = undefined;
  for (const link of nav.querySelectorAll("a")) {
    if (link.dataset.view === place.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const view = views[place.view];
  document.title = `${view.title} · Rung`;
  const fresh = h("div", { class: `view ${place.view}` });
  try {
    const end = await view.render(fresh, place.values);
    if (here !== visit) return typeof end === "function" ? end() : undefined;
    leave = end;
  } catch (error) {
    show(fresh, h("h1", {}, view.title), h("p", { class: "problem", role: "alert" }, error instanceof Error ? error.message : String(error)));
  }
  if (place.problem) fresh.prepend(h("p", { class: "problem", role: "alert" }, place.problem));
  show(root, fresh);
  document.documentElement.dataset.ready = place.view;
  if (here === 1) performance.mark("first view");
}

if (new URLSearchParams(location.search).get("embed") === "1") document.documentElement.dataset.embed = "yes";
theme();
navigation();
addEventListener("hashchange", () => {
  window.scrollTo(0, 0);
  void go();
});
addEventListener("unhandledrejection", (event) => announce(event.reason?.message ?? "something failed"));
await go();
