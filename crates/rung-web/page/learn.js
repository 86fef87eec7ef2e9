// A short introduction with stacks that can be edited.
import { button, h, show } from "./dom.js";
import { ask } from "./request.js";
import { bytes, plural, rungs } from "./format.js";
import { editor, legend } from "./strip.js";
import { evidence } from "./panels.js";
import { formatAddress } from "./state.js";

export const title = "Learn";

/** A small stack that can be edited, with its rungs. @param {string} letters */
async function toyStack(letters) {
  const start = [...letters];
  let layers = start;
  const box = h("div", {});
  const result = h("p", { class: "toy-result", "aria-live": "polite" });
  const NAMES = /** @type {Record<string, string>} */ ({ F: "full", r: "gdn", W: "window" });
  const draw = async () => {
    const stack = layers.map((letter) => NAMES[letter]).join(" ");
    const answer = await ask({ ask: "design", model: { stack: { text: stack, heads: 16, head_dim: 128 } }, certify: 0 });
    show(box, editor({
      strip: layers.join(""), base: start.join(""), titles: layers.map((letter, index) => `Layer ${index}: ${NAMES[letter]}`),
      preview: (_, first) => (first === "F" ? "r" : "F"), paint: (from, to, first) => { layers = layers.map((letter, index) => (index >= from && index <= to ? (first === "F" ? "r" : "F") : letter)); void draw(); },
    }).root);
    show(result, h("strong", {}, rungs(answer.after.rungs, answer.after.rungs_at_least)), ` ${answer.after.rungs === 1 ? "rung" : "rungs"}: ${answer.rungs_terms}. `, h("span", { class: "muted" }, answer.reason));
  };
  await draw();
  return h("div", { class: "panel toy" }, box, result, button("Start again", () => { layers = start; void draw(); }, { class: "quiet" }));
}

/** @param {HTMLElement} root */
export async function render(root) {
  const [fullStack, hybridStack] = await Promise.all([toyStack("FFF"), toyStack("rrrFrrrF")]);
  const models = (await ask({ ask: "gallery", context: 131072 })).filter((/** @type {any} */ model) => ["qwen3.5-9b", "qwen3-8b", "nemotron-nano-9b-v2"].includes(model.name));
  show(root, h("article", { class: "story" },
    h("h1", {}, "How many look-ups fit into one forward pass?"),
    h("p", {}, "Ask a model: who is the mother of the teacher of Ada? It must find Ada's teacher first, and only then can it look for the mother. Each of these is a ", h("strong", {}, "hop"), ": a look-up whose address is the result of the one before."),
    h("h2", {}, "One full layer, one look-up"),
    h("p", {}, "A full-attention layer lets a token read any earlier token, chosen by what it holds now. So a chain of look-ups needs one full layer each. And one more at the beginning, because the query must first find where the chain starts. Click a layer to change it:"),
    fullStack, legend(["Fr"]),
    h("h2", {}, "What recurrent layers add"),
    h("p", {}, "A recurrent layer (linear attention, Mamba, DeltaNet, RWKV) passes a small state from token to token. It cannot look anything up in a large table: the table does not fit into its state. But it can forward the start value to the query, and so save the first full layer. That is one extra hop, once, however many there are. Turn the first layers full and see it vanish:"),
    hybridStack,
    h("p", {}, "Both directions are known: the weights that do it can be written down ", evidence("constructed"), ", and beyond a certain table size no weights at all do one hop more ", evidence("proved"), "."),
    h("h2", {}, "See one"),
    h("p", {}, h("a", { href: formatAddress("pass", { construction: "U2", hops: 2 }) }, "Step through a forward pass"), ": two hops with one recurrent and two full layers. Change an entry of a table, and it finds the new answer."),
    h("h2", {}, "What it costs"),
    h("p", {}, "Every full layer keeps keys and values for every token. That is the KV cache, and it is why models mix layers. At 128k tokens:"),
    h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "model"), h("th", { scope: "col", class: "number" }, "full layers"), h("th", { scope: "col", class: "number" }, "rungs"), h("th", { scope: "col", class: "number" }, "cache"))),
      h("tbody", {}, models.map((/** @type {any} */ model) => h("tr", {}, h("th", { scope: "row" }, h("a", { href: formatAddress("designer", { model: `preset:${model.name}` }) }, model.name)), h("td", { class: "number" }, model.full_layers), h("td", { class: "number" }, rungs(model.rungs, model.rungs_at_least)), h("td", { class: "number" }, bytes(model.cache_bytes)))))),
    h("h2", {}, "What it does not say"),
    h("p", {}, "A rung count is about the worst case, one forward pass and any weights. It does not say what training finds; and at the sizes of real models most proofs begin far beyond any context of today. Then the answer here is ", h("em", {}, "unknown"), ", and it says so. A model that writes its steps down needs only one hop at a time."),
    h("p", {}, h("a", { class: "primary", href: formatAddress("designer", {}) }, "Open the designer"), " ", h("a", { href: formatAddress("certificate", { stack: "linear full", hops: 2, heads: 2, head_dim: 8, bits: 8 }) }, `or find a certificate for ${plural(2, "hop")}`))));
}
