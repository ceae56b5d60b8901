// The page "MindSpore": all runs in a table with their curves, or all about the one that is opened.

import { ChangesCard, comparedPair } from "./changes.js";
import { findColumns, shownColumns } from "./columns.js";
import { PALETTE } from "./curves.js";
import { button, element } from "./dom.js";
import { plural } from "./format.js";
import { Overlay } from "./overlay.js";
import { filterRows, listItems, makeSearch, sortRows } from "./query.js";
import { RunPage } from "./run_page.js";
import { tableCsv } from "./save.js";
import { Knowledge } from "./server.js";
import { Table } from "./table.js";
import { adoptFonts, isDark, outerDocument, THEMES, watchTheme } from "./theme.js";
import { Toolbar } from "./toolbar.js";
import { readView, remember, remembered, watchView, writeView } from "./view.js";

/** @typedef {import("./types").View} View */
/** @typedef {import("./types").Row} Row */
/** @typedef {import("./types").Column} Column */

const POLL_MS = 5000;
const POLL_WHILE_READING_MS = 1000;

export class Page {
  /** @param {Promise<Response | null>} first see `Knowledge` */
  constructor(first) {
    this.knowledge = new Knowledge(first);
    /** @type {View} */
    this.view = readView();
    /** @type {Column[]} */
    this.columns = [];
    /** @type {Row[]} */
    this.rows = [];
    /** @type {Set<string>} */
    this.closed = new Set();
    this.drawn = -1;
    this.said = "";
    const theme = remembered("theme", "auto");
    this.theme = THEMES.includes(theme) ? theme : "auto";
    /** @param {unknown} error */
    const fail = (error) => this.fail(error);
    /** @param {Partial<View>} change @param {boolean} [isStep] */
    const change = (change, isStep) => this.change(change, isStep);
    this.status = element("span", { class: "soft", role: "status" }, "reading…");
    this.source = element("span", { class: "soft path" });
    this.toggle = button("", () => this.turnTheme());
    this.problem = element("div");
    this.advice = element("div");
    this.toolbar = new Toolbar(change, { csv: () => this.saveTable(), png: () => this.table.savePicture(this.toolbar.count.textContent ?? ""), keysShown: () => this.rows.map((row) => row.key) });
    this.table = new Table({
      open: (key) => this.change({ run: key }, true), check: (key) => this.change({ checked: turned(this.view.checked, key) }),
      checkAll: (keys, isOn) => this.change({ checked: [...this.view.checked.filter((key) => !keys.includes(key)), ...(isOn ? keys : [])] }),
      pin: (key) => this.change({ pinned: turned(this.view.pinned, key) }), hide: (key) => this.change({ hidden: turned(this.view.hidden, key) }),
      base: (key) => this.change({ baseline: this.view.baseline === key ? "" : key }), changes: () => this.turnChanges(), sortBy: (id) => this.sortBy(id), fold: (title) => this.fold(title),
    });
    this.changes = new ChangesCard(this.knowledge, () => this.change({ changes: false }), fail);
    this.overlay = new Overlay(this.knowledge, change, fail);
    this.overlay.view = () => this.view;
    this.runs = element("div", { class: "all-runs" }, element("section", { class: "card" }, this.toolbar.root, this.table.scroll), this.changes.root, this.overlay.root);
    this.one = new RunPage(this.knowledge, change, fail);
    document.body.append(element("main", {},
      element("header", {}, element("h1", {}, "MindSpore"), this.source, element("span", { class: "grow" }), this.status, this.toggle),
      this.problem, this.advice, this.runs, this.one.root));
    this.runs.hidden = this.one.root.hidden = true;
    adoptFonts();
    watchTheme(() => this.applyTheme());
    watchView(() => this.goTo(readView()));
    document.addEventListener("keydown", (event) => this.press(event));
    this.applyTheme();
  }

  applyTheme() {
    document.documentElement.dataset.theme = isDark(this.theme) ? "dark" : "light";
    this.toggle.textContent = `Theme: ${this.theme}`;
    this.overlay.redraw();
    this.one.redraw();
  }

  turnTheme() {
    this.theme = THEMES[(THEMES.indexOf(this.theme) + 1) % THEMES.length];
    remember("theme", this.theme);
    this.applyTheme();
  }

  /**
   * @param {Partial<View>} change
   * @param {boolean} isStep whether "back" is to come back to what was shown before
   */
  change(change, isStep = false) {
    const view = { ...this.view, ...change };
    writeView(view, isStep);
    this.goTo(view);
  }

  /** @param {View} view */
  goTo(view) {
    const isOther = view.run !== this.view.run;
    this.view = view;
    this.draw();
    if (!isOther) return;
    if (view.run) this.one.load(view.run, view).catch((error) => this.fail(error));
    else this.table.scroll.focus();
  }

  /** @param {string} id of a column: upwards, downwards, then newest first again */
  sortBy(id) {
    const { sort } = this.view;
    const first = ["started", "eval", "rate", "step"].some((name) => id.startsWith(name)) ? `-${id}` : id;
    const second = first === id ? `-${id}` : id;
    this.change({ sort: sort === first ? second : sort === second ? "" : first });
  }

  turnChanges() {
    if (comparedPair(this.view)) this.change({ changes: !this.view.changes });
  }

  /** @param {string} title of a group */
  fold(title) {
    this.closed = new Set(turned([...this.closed], title));
    this.draw();
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    const isTyping = event.target instanceof Element && event.target.closest("input, select, textarea") !== null;
    if (event.key === "/" && !isTyping && !this.view.run) {
      event.preventDefault();
      this.toolbar.search.focus();
    } else if (event.key === "Escape" && this.view.run && !isTyping && !(event.target instanceof Element && event.target.closest(".plot"))) {
      this.change({ run: "" }, true);
    } else if (event.key === "Escape" && event.target === this.toolbar.search) {
      this.table.scroll.focus();
    }
  }

  draw() {
    const { last } = this.knowledge;
    if (last === null) return;
    const isOpen = Boolean(this.view.run);
    this.one.root.hidden = !isOpen;
    this.runs.hidden = isOpen || (!this.knowledge.rows.size && !last.rows.length);
    this.source.textContent = last.source;
    this.status.textContent = !last.is_known ? "reading…" : last.unread ? `reading… ${this.knowledge.rows.size - last.unread} of ${plural(this.knowledge.rows.size, "run")}`
      : last.left_out ? `up to date; ${plural(last.left_out, "older run")} left out` : "up to date";
    this.tell([last.fault, ...last.problems]);
    this.drawAdvice();
    if (!isOpen && !this.runs.hidden) this.drawRuns();
  }

  drawRuns() {
    const { knowledge, view } = this;
    const all = [...knowledge.rows.values()];
    if (this.drawn !== knowledge.version) {
      this.drawn = knowledge.version;
      this.columns = findColumns(all, knowledge.settings, () => knowledge.now);
    }
    const { matches, error } = makeSearch(view.query, view.isRegex, (row) => knowledge.tagsOf(row));
    this.rows = sortRows(filterRows(all, view, matches), view.sort, this.columns);
    const shown = shownColumns(this.columns, view.columns, view.onlyDiffering);
    this.toolbar.draw({ all, count: this.rows.length, view, columns: this.columns, shown, error });
    const colours = new Map(view.checked.map((key, index) => [key, PALETTE[index % PALETTE.length]]));
    if (!colours.size) this.rows.slice(0, 8).forEach((row, index) => colours.set(row.key, PALETTE[index % PALETTE.length]));
    this.table.draw({
      items: listItems(this.rows, view, this.closed), columns: shown, view, base: knowledge.rows.get(view.baseline) ?? null,
      usual: Object.fromEntries(knowledge.settings.map((one) => [one.name, one.usual])), colourOf: (key) => colours.get(key) ?? "",
      version: knowledge.version,
    });
    this.changes.draw(view);
    this.overlay.draw(this.rows, view);
  }

  saveTable() {
    tableCsv(this.rows, shownColumns(this.columns, this.view.columns, this.view.onlyDiffering));
  }

  drawAdvice() {
    const { last, rows } = this.knowledge;
    const advice = rows.size ? null : last?.advice ?? null;
    const text = JSON.stringify([advice, last?.is_known, rows.size]);
    if (text === this.advice.dataset.text) return;
    this.advice.dataset.text = text;
    const made = advice !== null ? [element("section", { class: "card advice" }, element("h2", {}, advice.title), element("p", {}, advice.text),
      ...advice.examples.flatMap((example) => [element("h3", {}, example.title), element("pre", { tabindex: 0 }, example.code)]))]
      : rows.size ? [] : [element("section", { class: "card" }, last?.is_known ? "There is no run below this logdir yet." : "Looking for runs…")];
    this.advice.replaceChildren(...made);
  }

  /** Lets the keyboard be ours, unless a person is at something of TensorBoard's. */
  takeFocus() {
    const focused = outerDocument()?.activeElement;
    if (focused && !["BODY", "IFRAME"].includes(focused.tagName)) return;
    this.table.scroll.classList.add("unasked"); // nobody pressed a key yet: there is nothing to point out
    this.table.scroll.focus({ preventScroll: true });
  }

  /** @param {unknown} error */
  fail(error) {
    this.tell([error instanceof Error ? error.message : String(error)]);
  }

  /** @param {string[]} lines */
  tell(lines) {
    const said = lines.filter(Boolean);
    const text = JSON.stringify(said);
    if (text === this.said) return;
    this.said = text;
    this.problem.replaceChildren(...(said.length
      ? [element("section", { class: "card problem", role: "alert" }, element("h3", {}, "Problems"), element("ul", {}, ...said.map((line) => element("li", {}, line))))]
      : []));
  }

  async runForever() {
    for (;;) {
      if (!document.hidden && window.innerHeight > 0) await this.refresh(); // a frame behind another page has no height
      const { last } = this.knowledge;
      const isReading = last !== null && (last.unread > 0 || !last.is_known);
      await new Promise((done) => setTimeout(done, isReading ? POLL_WHILE_READING_MS : POLL_MS));
    }
  }

  async refresh() {
    try {
      const isFirst = this.knowledge.last === null;
      const isChanged = await this.knowledge.refresh();
      this.draw();
      if (isFirst && !this.view.run) this.takeFocus();
      if (this.view.run && (isFirst || isChanged)) await this.one.load(this.view.run, this.view);
    } catch (error) {
      this.status.textContent = "no answer";
      this.tell([`TensorBoard does not answer: ${error instanceof Error ? error.message : error}`]);
    }
  }
}

/**
 * @param {string[]} list
 * @param {string} one
 * @returns {string[]} without it if it was there, else with it
 */
function turned(list, one) {
  return list.includes(one) ? list.filter((other) => other !== one) : [...list, one];
}

