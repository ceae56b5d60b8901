// What stands above the table: search, filters, groups, the choice of columns, and what can be done with checked runs.

import { comparedPair } from "./changes.js";
import { button, element, select, tick } from "./dom.js";
import { plural } from "./format.js";
import { HEALTHS, healthsOf } from "./query.js";

/** @typedef {import("./types").Row} Row */
/** @typedef {import("./types").View} View */
/** @typedef {import("./types").Column} Column */

const STATES = ["running", "ended", "failed", "stalled", "non-finite", "reading", "unknown"];
const STATE_TITLES = /** @type {Record<string, string>} */ ({ "non-finite": "NaN loss" });
const HEALTH_TITLES = /** @type {Record<string, string>} */ ({ NaN: "NaN/Inf" });
const MOST_GROUPS = 30;

/**
 * @typedef {object} Drawing
 * @property {Row[]} all
 * @property {number} count of rows that are shown
 * @property {View} view
 * @property {Column[]} columns all of them
 * @property {Column[]} shown
 * @property {string} error what is wrong with the search
 */

export class Toolbar {
  /**
   * @param {(change: Partial<View>) => void} change
   * @param {{csv: () => void, png: () => void, keysShown: () => string[]}} acts
   */
  constructor(change, acts) {
    this.change = change;
    this.acts = acts;
    this.search = element("input", {
      type: "search", placeholder: "Search: name, setting, tag, lr>0.01   ( / )", "aria-label": "Search runs", "aria-describedby": "search-error",
      input: () => this.change({ query: this.search.value }),
    });
    this.regex = button(".*", () => this.change({ isRegex: this.regex.getAttribute("aria-pressed") !== "true" }), { title: "The search is a regular expression", "aria-pressed": "false", "aria-label": "Regular expression" });
    this.error = element("span", { class: "bad", id: "search-error", role: "status" });
    this.filters = element("div", { class: "filters", role: "group", "aria-label": "Filters" });
    this.choices = element("span", { class: "choices" });
    this.chosen = element("div", { class: "controls chosen" });
    this.picker = new Picker(change);
    this.count = element("h3", { role: "status" });
    this.root = element("div", { class: "toolbar" },
      element("div", { class: "controls" }, this.count, this.search, this.regex, this.error, element("span", { class: "grow" }), this.choices,
        this.picker.root, button("CSV", () => this.acts.csv(), { title: "Save what the table shows, for a spreadsheet" }),
        button("PNG", () => this.acts.png(), { title: "Save what the table shows, as a picture" })),
      this.filters, this.chosen);
    this.mark = "";
    this.chosenMark = "";
    this.choicesMark = "";
  }

  /** @param {Drawing} drawing */
  draw(drawing) {
    const { view, all, count, error } = drawing;
    const title = count === all.length ? plural(all.length, "run") : `${count} of ${plural(all.length, "run")}`;
    if (this.count.textContent !== title) this.count.textContent = title;
    if (this.search.value !== view.query) this.search.value = view.query;
    this.regex.setAttribute("aria-pressed", String(view.isRegex));
    this.search.setAttribute("aria-invalid", String(Boolean(error)));
    if (this.error.textContent !== error) this.error.textContent = error;
    this.drawFilters(all, view);
    this.drawChoices(drawing);
    this.drawChosen(view);
    this.picker.draw(drawing);
  }

  /**
   * @param {Row[]} all
   * @param {View} view
   */
  drawFilters(all, view) {
    /** @type {Record<string, number>} */
    const counts = {};
    for (const row of all) for (const name of [`s:${row.state}`, ...healthsOf(row).map((health) => `h:${health}`)]) counts[name] = (counts[name] ?? 0) + 1;
    const mark = JSON.stringify([counts, view.states, view.healths]);
    if (mark === this.mark) return;
    this.mark = mark;
    const focused = this.filters.contains(document.activeElement) ? document.activeElement?.getAttribute("data-filter") : null;
    /** @param {string} name @param {string} title @param {string} kind @param {string[]} on @param {(on: string[]) => void} set */
    const chip = (name, title, kind, on, set) => {
      const isOn = on.includes(name), number = counts[`${kind}:${name}`] ?? 0;
      if (!number && !isOn) return null;
      return element("button", { type: "button", class: `chip ${name}`, "aria-pressed": isOn, "data-filter": kind + name, click: () => set(isOn ? on.filter((one) => one !== name) : [...on, name]) },
        title, element("span", { class: "number" }, ` ${number}`));
    };
    this.filters.replaceChildren(...[
      ...STATES.map((name) => chip(name, STATE_TITLES[name] ?? name, "s", view.states, (states) => this.change({ states }))),
      element("span", { class: "bar", "aria-hidden": "true" }),
      ...HEALTHS.map((name) => chip(name, HEALTH_TITLES[name] ?? name, "h", view.healths, (healths) => this.change({ healths }))),
      view.states.length + view.healths.length ? button("Clear filters", () => this.change({ states: [], healths: [] })) : null,
    ].filter((one) => one !== null));
    if (focused) /** @type {HTMLElement | null} */ (this.filters.querySelector(`[data-filter="${focused}"]`))?.focus();
  }

  /** @param {Drawing} drawing */
  drawChoices({ columns, view }) {
    const settings = columns.filter((column) => column.group === "setting" && (column.distinct > 1 || view.group === column.id)).slice(0, MOST_GROUPS);
    const mark = JSON.stringify([settings.map((one) => one.id), view.group, view.onlyDiffering]);
    if (mark === this.choicesMark || this.choices.contains(document.activeElement)) return;
    this.choicesMark = mark;
    this.choices.replaceChildren(
      select("Group by", [["", "nothing"], ["folder", "folder"], ...settings.map((one) => /** @type {[string, string]} */ ([one.id, one.title]))], view.group, (group) => this.change({ group })),
      tick("only what differs", view.onlyDiffering, (onlyDiffering) => this.change({ onlyDiffering }), "Leave out the columns in which all runs are equal"));
  }

  /** @param {View} view */
  drawChosen(view) {
    const { checked, hidden, pinned, baseline, showHidden, changes } = view;
    const mark = JSON.stringify([checked, hidden, pinned, baseline, showHidden, changes]);
    if (mark === this.chosenMark) return;
    this.chosenMark = mark;
    const isPinned = checked.length > 0 && checked.every((key) => pinned.includes(key));
    const parts = checked.length ? [
      element("b", {}, `${checked.length} checked`),
      button(isPinned ? "Unpin" : "Pin", () => this.change({ pinned: isPinned ? pinned.filter((key) => !checked.includes(key)) : [...new Set([...pinned, ...checked])] })),
      button("Hide", () => this.change({ hidden: [...new Set([...hidden, ...checked])], checked: [] })),
      button("Show only these", () => this.change({ hidden: this.acts.keysShown().filter((key) => !checked.includes(key)) })),
      checked.length === 1 ? button("Baseline", () => this.change({ baseline: checked[0] }), { title: "Compare all others with this one" }) : null,
      comparedPair(view) ? button("What changed", () => this.change({ changes: !changes }), { title: "What is different between the two, and from which step their losses part (d)", "aria-pressed": changes }) : null,
      button("Uncheck", () => this.change({ checked: [] })),
    ] : [];
    if (baseline) parts.push(button("No baseline", () => this.change({ baseline: "" })));
    if (hidden.length) {
      parts.push(element("span", { class: "soft" }, `${hidden.length} hidden`), tick("show them", showHidden, (isOn) => this.change({ showHidden: isOn })),
        button("Unhide all", () => this.change({ hidden: [], showHidden: false })));
    }
    this.chosen.replaceChildren(...parts.filter((one) => one !== null));
    this.chosen.hidden = !parts.length;
  }
}

/** The choice of columns, those by which runs differ most first. */
class Picker {
  /** @param {(change: Partial<View>) => void} change */
  constructor(change) {
    this.change = change;
    this.filter = element("input", { type: "search", placeholder: "Find a column", "aria-label": "Find a column", input: () => this.list() });
    this.items = element("div", { class: "picker-items" });
    this.root = element("details", {
      class: "picker", toggle: () => this.list(), keydown: (event) => {
        if (event.key === "Escape") this.close();
      },
    },
    element("summary", { class: "plain" }, "Columns"),
    element("div", { class: "popup" }, element("div", { class: "controls" }, this.filter, button("Usual", () => this.change({ columns: null }))), this.items));
    document.addEventListener("pointerdown", (event) => {
      if (event.target instanceof Node && !this.root.contains(event.target)) this.root.open = false;
    });
    /** @type {Drawing | null} */
    this.drawing = null;
    this.mark = "";
  }

  close() {
    this.root.open = false;
    this.root.querySelector("summary")?.focus();
  }

  /** @param {Drawing} drawing */
  draw(drawing) {
    this.drawing = drawing;
    if (this.root.open) this.list();
  }

  list() {
    if (this.drawing === null || !this.root.open) return;
    const { columns, shown } = this.drawing;
    const on = shown.map((column) => column.id), words = this.filter.value.toLowerCase();
    const found = columns.filter((column) => column.title.toLowerCase().includes(words)).slice(0, 300);
    const mark = JSON.stringify([found.map((column) => [column.id, column.distinct]), on]);
    if (mark === this.mark) return;
    this.mark = mark;
    const focused = this.items.contains(document.activeElement) ? document.activeElement?.getAttribute("data-column") : null;
    this.items.replaceChildren(...found.map((column) => {
      const box = element("input", {
        type: "checkbox", "data-column": column.id,
        change: () => this.change({ columns: columns.map((one) => one.id).filter((id) => (id === column.id ? box.checked : on.includes(id))) }),
      });
      box.checked = on.includes(column.id);
      const about = column.group === "setting" ? element("span", { class: "soft" }, column.distinct > 1 ? ` ${column.distinct} values` : " equal in all") : null;
      return element("label", { class: "tick" }, box, column.title, about);
    }));
    if (focused) /** @type {HTMLElement | null} */ (this.items.querySelector(`[data-column="${CSS.escape(focused)}"]`))?.focus();
  }
}
