// Builds elements without parsing HTML: strings become text nodes, so that nothing in a config can inject markup.

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * Creates an element. Attributes that start with `on` are listeners; `class`, `aria-*` and so on are attributes; null omits an attribute.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/**
 * Creates an SVG element.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

/** @param {any} element @param {Record<string, any>} attributes @param {any[]} children */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" && "value" in element) element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

/** @param {Node} element @param {any[]} children */
function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replaces an element's children. @param {Element} element @param {...(Child | Child[])} children */
export function show(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/** A labelled control. @param {string} label @param {Element} control @param {string} [note] */
export function labelled(label, control, note) {
  return h("label", { class: "field" }, h("span", {}, label), control, note && h("small", {}, note));
}

/**
 * A drop-down.
 * @param {string | number} value
 * @param {(string | [string | number, string])[]} choices
 * @param {(value: string) => void} change
 * @param {Record<string, any>} [attributes]
 */
export function select(value, choices, change, attributes = {}) {
  const options = choices.map((choice) => {
    const [key, text] = Array.isArray(choice) ? choice : [choice, choice];
    return h("option", { value: key, selected: String(key) === String(value) }, text);
  });
  return h("select", { ...attributes, onchange: (/** @type {any} */ event) => change(event.target.value) }, options);
}

/** A button. @param {string} text @param {() => void} click @param {Record<string, any>} [attributes] */
export function button(text, click, attributes = {}) {
  return h("button", { type: "button", ...attributes, onclick: click }, text);
}

/** Shows a message for a moment; screen readers announce it. @param {string} message */
export function announce(message) {
  const status = /** @type {HTMLElement} */ (document.getElementById("status"));
  status.textContent = message;
  status.classList.add("shown");
  clearTimeout(announce.timer);
  announce.timer = window.setTimeout(() => status.classList.remove("shown"), 2500);
}
announce.timer = 0;

/** Copies text to the clipboard. @param {string} text @param {string} description */
export async function copy(text, description) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { class: "offscreen", "aria-hidden": "true" }, text);
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  announce(`${description} copied`);
}

/** Downloads a file. @param {string} name @param {Blob} blob */
export function download(name, blob) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
