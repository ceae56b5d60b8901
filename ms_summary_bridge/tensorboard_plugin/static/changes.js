// What changed between two runs, in the words of the command `diff`.

import { button, element } from "./dom.js";
import { growth, ask } from "./server.js";

/** @typedef {import("./types").View} View */
/** @typedef {import("./types").Changes} Changes */
/** @typedef {import("./server.js").Knowledge} Knowledge */

const MOST_CHANGES = 500;

/**
 * The runs that are compared, A first: the baseline and the checked one, or the two that are checked.
 *
 * @param {View} view
 * @returns {[string, string] | null}
 */
export function comparedPair({ checked, baseline }) {
  const others = checked.filter((key) => key !== baseline);
  if (baseline && others.length === 1) return [baseline, others[0]];
  return !baseline && others.length === 2 ? [others[0], others[1]] : null;
}

export class ChangesCard {
  /**
   * @param {Knowledge} knowledge
   * @param {() => void} close
   * @param {(error: unknown) => void} fail
   */
  constructor(knowledge, close, fail) {
    this.knowledge = knowledge;
    this.fail = fail;
    this.asked = "";
    this.shown = "";
    this.body = element("div");
    this.root = element("section", { class: "card changes", "aria-label": "What changed between two runs" },
      element("div", { class: "controls" }, element("h3", {}, "What changed"), element("span", { class: "grow" }), button("×", close, { "aria-label": "Close what changed" })), this.body);
  }

  /** @param {View} view */
  draw(view) {
    const pair = view.changes ? comparedPair(view) : null;
    const rows = (pair ?? []).flatMap((key) => this.knowledge.rows.get(key) ?? []);
    this.root.hidden = rows.length !== 2;
    if (this.root.hidden) {
      this.asked = "";
      return;
    }
    const pairOf = JSON.stringify(pair), mark = JSON.stringify([pair, ...rows.map(growth)]);
    if (mark === this.asked) return;
    if (!this.asked.startsWith(pairOf.slice(0, -1))) this.body.replaceChildren(element("div", { class: "soft" }, "reading both runs…"));
    this.asked = mark;
    this.load(rows, mark).catch((error) => {
      this.body.replaceChildren(element("div", { class: "bad", role: "status" }, error instanceof Error ? error.message : String(error)));
    });
  }

  /**
   * @param {import("./types").Row[]} rows
   * @param {string} mark
   */
  async load([a, b], mark) {
    const found = /** @type {Changes} */ (await ask(`changes?${new URLSearchParams({ a: a.key, b: b.key })}`));
    if (mark !== this.asked) return; // two others were asked for meanwhile
    const text = JSON.stringify(found);
    if (text === this.shown && this.body.querySelector("table, p")) return;
    this.shown = text;
    const top = this.body.querySelector(".scroll")?.scrollTop ?? 0;
    this.body.replaceChildren(element("p", {}, found.same ? "Nothing that was recorded is different; " : "", found.loss_text), ...changesTable(found, a.name, b.name),
      ...(found.problems.length ? [element("ul", { class: "bad" }, ...found.problems.map((problem) => element("li", {}, `not read: ${problem}`)))] : []));
    const scroll = this.body.querySelector(".scroll");
    if (scroll) scroll.scrollTop = top;
  }
}

/**
 * @param {Changes} found
 * @param {string} a the name of A
 * @param {string} b
 */
function changesTable({ changes, texts }, a, b) {
  if (!changes.length) return [];
  /** @type {Element[]} */
  const lines = [];
  let section = "";
  changes.slice(0, MOST_CHANGES).forEach((one, index) => {
    if (one.section !== section) {
      section = one.section;
      lines.push(element("tr", { class: "section" }, element("th", { scope: "rowgroup", colspan: 3 }, section)));
    }
    lines.push(element("tr", { "data-section": one.section }, element("th", { scope: "row", class: "key" }, one.name || one.section),
      ...texts[index].map((text) => element("td", { class: text === null ? "soft" : null }, text ?? "(nothing)"))));
  });
  const more = changes.length - MOST_CHANGES;
  return [element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Changes" }, element("table", {},
    element("thead", {}, element("tr", {}, element("td"), element("th", { scope: "col" }, element("span", { class: "mark" }, "A"), ` ${a}`), element("th", { scope: "col" }, element("span", { class: "mark" }, "B"), ` ${b}`))),
    element("tbody", {}, ...lines))), more > 0 ? element("div", { class: "soft" }, `and ${more} more`) : ""].filter((one) => one !== "");
}
