// Elements of the page. Every text that comes from a log is a text node or an attribute's value, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {string | number | boolean | null | undefined | ((event: any) => void)} Attribute */
/** @typedef {Node | string | null | undefined | false} Child */

/**
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {Record<string, Attribute>} attributes a function listens to the event of that name
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[Name]}
 */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  fill(made, attributes, children);
  return made;
}

/**
 * @param {string} name of an element of SVG
 * @param {Record<string, Attribute>} attributes
 * @param {...(Child | Child[])} children
 * @returns {Element}
 */
export function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  fill(made, attributes, children);
  return made;
}

/**
 * @param {Element} made
 * @param {Record<string, Attribute>} attributes
 * @param {(Child | Child[])[]} children
 */
function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, /** @type {EventListener} */ (value));
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, String(value));
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) made.append(child);
  }
}

/**
 * @param {string} title
 * @param {...(Child | Child[])} children
 */
export function card(title, ...children) {
  return element("section", { class: "card" }, element("h3", {}, title), ...children);
}

/**
 * A card that has nothing to show: one line, which opens to say so in full.
 *
 * @param {string} title
 * @param {string} text
 */
export function foldedCard(title, text) {
  return element("details", { class: "card folded" },
    element("summary", {}, element("h3", {}, title), element("span", { class: "soft" }, " – none")),
    element("div", { class: "soft" }, text));
}

/**
 * @param {[string, Child][]} rows
 */
export function pairs(rows) {
  const lines = rows.map(([name, value]) =>
    element("tr", {}, element("th", { class: "key", scope: "row" }, name), element("td", {}, value)));
  return element("table", {}, element("tbody", {}, ...lines));
}

/**
 * @param {string} label
 * @param {() => void} act
 * @param {Record<string, Attribute>} attributes
 */
export function button(label, act, attributes = {}) {
  return element("button", { type: "button", class: "plain", click: act, ...attributes }, label);
}

/**
 * A choice of one of several, with its name.
 *
 * @param {string} label
 * @param {[string, string][]} choices the value of each, and what is read
 * @param {string} value
 * @param {(value: string) => void} act
 */
export function select(label, choices, value, act) {
  const made = element("select", { "aria-label": label, change: () => act(made.value) },
    ...choices.map(([name, text]) => element("option", { value: name }, text)));
  made.value = value;
  return element("label", { class: "choice" }, element("span", { class: "soft" }, label), made);
}

/**
 * @param {string} label
 * @param {boolean} isOn
 * @param {(isOn: boolean) => void} act
 * @param {string} [tip]
 */
export function tick(label, isOn, act, tip) {
  const box = element("input", { type: "checkbox", change: () => act(box.checked) });
  box.checked = isOn;
  return element("label", { class: "tick", title: tip }, box, label);
}

/**
 * Lets something be drawn anew when there is another room for it; in the next frame, since it may change that room.
 *
 * @param {Element} place
 * @param {() => void} act
 */
export function watchSize(place, act) {
  new ResizeObserver(() => requestAnimationFrame(act)).observe(place);
}

/**
 * Gives the person a file.
 *
 * @param {string} name
 * @param {Blob} blob
 */
export function download(name, blob) {
  const url = URL.createObjectURL(blob);
  const link = element("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
