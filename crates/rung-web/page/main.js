// Navigation, theme, and the view that the address names.
import { announce, button, copy, h, show } from "./dom.js";
import { parseAddress } from "./state.js";
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
let leaveView;
let visits = 0;

/** Applies the stored theme and makes the button switch it. */
function setUpTheme() {
  const stored = localStorage.getItem("theme");
  if (stored) document.documentElement.dataset.theme = stored;
  document.getElementById("theme")?.addEventListener("click", () => {
    const isDark = document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = isDark ? "light" : "dark";
    localStorage.setItem("theme", document.documentElement.dataset.theme);
  });
}

function drawNavigation() {
  const names = Object.keys(views).filter((name) => name !== "runs" || document.documentElement.dataset.runs === "yes");
  show(nav, names.map((name) => h("a", { href: `#/1/${name}`, "data-view": name }, views[name].title)),
    button("Copy link", () => void copy(location.href, "Link"), { id: "copy-link", class: "quiet" }));
}

/** Shows the view of the current address. */
async function showView() {
  const visit = ++visits;
  const address = parseAddress(location.hash);
  if (typeof leaveView === "function") leaveView();
  leaveView = undefined;
  for (const link of nav.querySelectorAll("a")) {
    if (link.dataset.view === address.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const view = views[address.view];
  document.title = `${view.title} · Rung`;
  const container = h("div", { class: `view ${address.view}` });
  try {
    const leave = await view.render(container, address.values);
    if (visit !== visits) return typeof leave === "function" ? leave() : undefined;
    leaveView = leave;
  } catch (error) {
    show(container, h("h1", {}, view.title), h("p", { class: "problem", role: "alert" }, error instanceof Error ? error.message : String(error)));
  }
  if (address.problem) container.prepend(h("p", { class: "problem", role: "alert" }, address.problem));
  show(root, container);
  document.documentElement.dataset.ready = address.view;
  if (visit === 1) performance.mark("first view");
}

if (new URLSearchParams(location.search).get("embed") === "1") document.documentElement.dataset.embed = "yes";
setUpTheme();
drawNavigation();
addEventListener("hashchange", () => {
  window.scrollTo(0, 0);
  void showView();
});
addEventListener("unhandledrejection", (event) => announce(event.reason?.message ?? "something failed"));
await showView();
