// The table of runs. Only the lines that are on the screen are in the document, whatever number of runs there is.

import { columnWidths, difference } from "./columns.js";
import { element, watchSize } from "./dom.js";
import { brief, exact, moment } from "./format.js";
import { meanAndSpread } from "./query.js";
import { MOST_LINES, tablePicture } from "./table_picture.js";

/** @typedef {import("./types").Row} Row */
/** @typedef {import("./types").Item} Item */
/** @typedef {import("./types").Column} Column */
/** @typedef {import("./types").View} View */

const HEIGHT = 34;
const BEYOND = 8;

/**
 * @typedef {object} Drawing
 * @property {Item[]} items
 * @property {Column[]} columns
 * @property {View} view
 * @property {Row | null} base the baseline
 * @property {Record<string, unknown>} usual of each setting, the value that most runs have
 * @property {number} version of what is known of runs
 * @property {(key: string) => string} colourOf a checked run's colour; empty for another's
 */

/**
 * @typedef {object} Acts
 * @property {(key: string) => void} open
 * @property {(key: string) => void} check
 * @property {(keys: string[], isOn: boolean) => void} checkAll
 * @property {(key: string) => void} pin
 * @property {(key: string) => void} hide
 * @property {(key: string) => void} base
 * @property {() => void} changes
 * @property {(id: string) => void} sortBy
 * @property {(title: string) => void} fold
 */

export class Table {
  /** @param {Acts} acts */
  constructor(acts) {
    this.acts = acts;
    /** @type {Drawing | null} */
    this.drawing = null;
    /** The key of the line that the keyboard is at. */
    this.active = "";
    /** What the lines are ordered by: another one begins at its top. */
    this.order = "";
    /** @type {Map<string, {mark: string, line: HTMLElement}>} */
    this.lines = new Map();
    this.head = element("thead");
    this.body = element("tbody");
    this.widths = element("colgroup");
    this.table = element("table", { class: "runs" }, this.widths, this.head, this.body);
    this.scroll = element("div", {
      class: "scroll table", tabindex: 0, role: "region", "aria-label": "Runs: arrow keys move, Enter opens, Space checks, p pins, h hides, b is the baseline, d tells what changed between two",
      scroll: () => this.drawLines(), keydown: (event) => this.press(event),
    }, this.table);
    this.everything = element("input", { type: "checkbox", "aria-label": "Check all that are shown", change: () =>
      this.acts.checkAll(this.rowKeys(), this.everything.checked) });
    watchSize(this.scroll, () => this.drawLines());
  }

  rowKeys() {
    return (this.drawing?.items ?? []).flatMap((item) => (item.kind === "row" ? [item.key] : []));
  }

  /** @param {Drawing} drawing */
  draw(drawing) {
    const isFirst = this.drawing === null;
    const before = this.drawing?.columns.map((column) => column.id + column.title).join("\n");
    const isNews = drawing.version !== this.drawing?.version || drawing.base !== this.drawing.base;
    this.drawing = drawing;
    const isOther = before !== drawing.columns.map((column) => column.id + column.title).join("\n");
    if (isFirst || isOther) this.lines.clear();
    if (isNews || isOther) this.setWidths();
    const order = JSON.stringify([drawing.view.query, drawing.view.states, drawing.view.healths, drawing.view.sort, drawing.view.group]);
    if (order !== this.order && this.order) this.scroll.scrollTop = 0;
    this.order = order;
    this.drawHead();
    this.drawLines();
  }

  setWidths() {
    const { items, columns, base } = /** @type {Drawing} */ (this.drawing);
    const rows = items.flatMap((item) => (item.kind === "row" ? [item.row] : item.rows.slice(0, 1)));
    const widths = columnWidths(rows, columns, base, this.scroll.clientWidth);
    this.table.style.width = `${widths.reduce((sum, width) => sum + width, 0)}px`;
    this.widths.replaceChildren(...widths.map((width) => {
      const made = element("col");
      made.style.width = `${width}px`;
      return made;
    }));
  }

  drawHead() {
    const { columns, view } = /** @type {Drawing} */ (this.drawing);
    const id = view.sort.replace(/^-/, ""), way = view.sort.startsWith("-") ? "descending" : "ascending";
    /** @param {string} name @param {string} title @param {string} kind @param {string} tip */
    const cell = (name, title, kind, tip) => {
      const isSorted = id === name;
      const arrow = isSorted ? (way === "ascending" ? " ↑" : " ↓") : "";
      return element("th", { scope: "col", class: kind, "aria-sort": isSorted ? way : "none", "data-column": name },
        element("button", { type: "button", title: tip || title, click: () => this.acts.sortBy(name) }, title + arrow));
    };
    const keys = this.rowKeys();
    this.everything.checked = keys.length > 0 && keys.every((key) => view.checked.includes(key));
    const focused = document.activeElement?.closest("th")?.getAttribute("data-column");
    this.head.replaceChildren(element("tr", {},
      element("td", { class: "check" }, this.everything),
      cell("name", "Run", "name", ""),
      ...columns.map((column) => cell(column.id, column.title, classOf(column), column.tip))));
    if (focused) /** @type {HTMLElement | null} */ (this.head.querySelector(`th[data-column="${CSS.escape(focused)}"] button`))?.focus();
  }

  drawLines() {
    if (this.drawing === null) return;
    const { items } = this.drawing;
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / HEIGHT) - BEYOND);
    const last = Math.min(items.length, Math.ceil((this.scroll.scrollTop + this.scroll.clientHeight) / HEIGHT) + BEYOND);
    this.table.setAttribute("aria-rowcount", String(items.length + 1));
    /** @type {Map<string, {mark: string, line: HTMLElement}>} */
    const kept = new Map();
    const wanted = items.slice(first, last).map((item, index) => {
      const mark = this.markOf(item, first + index);
      const old = this.lines.get(item.key);
      const one = old?.mark === mark ? old : { mark, line: this.makeLine(item, first + index) };
      if (old && old !== one && old.line.contains(document.activeElement)) this.refocus(old.line, one.line);
      kept.set(item.key, one);
      return one.line;
    });
    this.lines = kept;
    const lines = [spacer(first * HEIGHT), ...wanted, spacer((items.length - last) * HEIGHT)];
    // Lines that stay are not taken out and put in again: one of them may have the focus.
    const stay = new Set(lines);
    for (const child of [...this.body.children]) if (!stay.has(/** @type {HTMLElement} */ (child))) child.remove();
    lines.forEach((line, index) => {
      if (this.body.children[index] !== line) this.body.insertBefore(line, this.body.children[index] ?? null);
    });
  }

  /**
   * Gives the focus to what has taken the place of a line, once that is in the document.
   *
   * @param {HTMLElement} old
   * @param {HTMLElement} line
   */
  refocus(old, line) {
    const place = [...old.querySelectorAll("button, input")].indexOf(/** @type {Element} */ (document.activeElement));
    queueMicrotask(() => /** @type {HTMLElement | undefined} */ (line.querySelectorAll("button, input")[place])?.focus());
  }

  /**
   * @param {Item} item
   * @param {number} index
   */
  markOf(item, index) {
    const { view, base, colourOf } = /** @type {Drawing} */ (this.drawing);
    const isActive = item.key === this.active;
    if (item.kind === "group") return JSON.stringify([index, isActive, item.isOpen, item.rows.map((row) => [row.key, row.loss, row.eval])]);
    return JSON.stringify([index, isActive, item.row, item.isPinned, colourOf(item.key), view.checked.includes(item.key),
      view.baseline, view.hidden.includes(item.key), base?.loss, base?.eval, Math.floor(Date.now() / 30000)]);
  }

  /**
   * @param {Item} item
   * @param {number} index
   */
  makeLine(item, index) {
    return item.kind === "group" ? this.groupLine(item, index) : this.rowLine(item, index);
  }

  /**
   * @param {import("./types").RowItem} item
   * @param {number} index
   */
  rowLine(item, index) {
    const { columns, view, base, usual, colourOf } = /** @type {Drawing} */ (this.drawing);
    const { row, key } = item;
    const box = element("input", { type: "checkbox", "aria-label": `Compare ${row.name}`, change: () => this.acts.check(key) });
    box.checked = view.checked.includes(key);
    const dot = element("i", { class: "dot", "aria-hidden": "true" });
    dot.style.background = colourOf(key) || "transparent";
    const marks = [view.baseline === key ? "baseline" : "", item.isPinned && view.baseline !== key ? "pinned" : "", view.hidden.includes(key) ? "hidden" : ""];
    const cells = columns.map((column) => {
      const kind = classOf(column);
      if (column.show !== undefined) {
        const title = column.id === "state" ? row.evidence.join("\n") : column.id === "age" ? moment(row.last_write || row.first_time) : column.kind === "number" ? exact(column.read(row)) : null;
        return element("td", { class: kind, title }, column.show(row, view.baseline === key ? null : base));
      }
      const value = column.read(row), name = column.title;
      if (value === null) return element("td", { class: `${kind} soft`, "data-config": name }, "–");
      const isOther = value !== (base === null ? usual[name] : base.settings[name]);
      return element("td", { class: isOther ? `${kind} differs` : kind, title: exact(value), "data-config": name }, brief(value),
        base !== null && base !== row ? difference(value, base.settings[name], 0) : []);
    });
    return element("tr", {
      class: item.isPinned ? "pinned" : null, "aria-rowindex": index + 2, "aria-current": key === this.active ? "true" : null, "data-key": key,
      click: (event) => this.point(event, key),
    },
    element("td", { class: "check" }, box),
    element("th", { class: "name", scope: "row" }, dot, element("button", { type: "button", class: "name", title: row.name, click: () => this.acts.open(key) }, row.name),
      ...marks.filter(Boolean).map((mark) => element("span", { class: "mark" }, mark))),
    ...cells);
  }

  /**
   * @param {import("./types").GroupItem} item
   * @param {number} index
   */
  groupLine(item, index) {
    const { columns } = /** @type {Drawing} */ (this.drawing);
    const keys = item.rows.map((row) => row.key);
    const box = element("input", { type: "checkbox", "aria-label": `Compare the runs of ${item.title}`, change: () => this.acts.checkAll(keys, box.checked) });
    box.checked = keys.every((key) => this.drawing?.view.checked.includes(key));
    const cells = columns.map((column) => {
      const isMeant = column.kind === "number" && !["age"].includes(column.id);
      const found = isMeant ? meanAndSpread(item.rows.map(column.read)) : null;
      if (found === null) return element("td", { class: classOf(column) });
      const spread = found.count > 1 && found.std > 0 ? [" ", element("span", { class: "soft" }, `± ${brief(Number(found.std.toPrecision(2)))}`)] : [];
      return element("td", { class: classOf(column), title: `mean of ${found.count}` }, brief(Number(found.mean.toPrecision(4))), spread);
    });
    return element("tr", { class: "group", "aria-rowindex": index + 2, "aria-current": item.key === this.active ? "true" : null, "data-key": item.key },
      element("td", { class: "check" }, box),
      element("th", { class: "name", scope: "row" }, element("button", { type: "button", class: "fold", title: item.title, "aria-expanded": item.isOpen, click: () => this.acts.fold(item.title) },
        `${item.isOpen ? "▾" : "▸"} ${item.title}`), element("span", { class: "soft" }, ` ${item.rows.length}`)),
      ...cells);
  }

  /**
   * @param {MouseEvent} event
   * @param {string} key
   */
  point(event, key) {
    if (event.target instanceof Element && event.target.closest("button, input")) return;
    this.active = key;
    this.drawLines();
  }

  /** @param {string} title */
  savePicture(title) {
    if (this.drawing === null) return;
    const { items } = this.drawing;
    const lines = items.slice(0, MOST_LINES).map((item, index) => this.makeLine(item, index));
    const widths = [...this.widths.children].map((column) => parseFloat(/** @type {HTMLElement} */ (column).style.width));
    tablePicture(title, widths, this.head.children[0], lines, items.length - lines.length);
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    this.scroll.classList.remove("unasked");
    if (event.ctrlKey || event.metaKey || event.altKey || this.drawing === null) return;
    const { items } = this.drawing;
    const page = Math.max(1, Math.floor(this.scroll.clientHeight / HEIGHT) - 2);
    const moves = /** @type {Record<string, number>} */ ({
      ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: page, PageUp: -page, Home: -items.length, End: items.length,
    });
    const at = items.findIndex((item) => item.key === this.active);
    if (event.key in moves) {
      const next = Math.max(0, Math.min(items.length - 1, at + moves[event.key]));
      this.active = items[next]?.key ?? "";
      this.show(next);
      event.preventDefault();
      return;
    }
    const item = items[at];
    if (event.key === "d") this.acts.changes();
    if (item === undefined || event.target !== this.scroll) return;
    const act = this.actOf(event.key, item);
    if (act === null) return;
    event.preventDefault();
    act();
  }

  /**
   * @param {string} key
   * @param {Item} item
   * @returns {(() => void) | null}
   */
  actOf(key, item) {
    if (item.kind === "group") {
      if (key === "Enter" || key === " ") return () => this.acts.fold(item.title);
      return null;
    }
    if (key === "Enter") return () => this.acts.open(item.key);
    if (key === " ") return () => this.acts.check(item.key);
    if (key === "p") return () => this.acts.pin(item.key);
    if (key === "h") return () => this.acts.hide(item.key);
    if (key === "b") return () => this.acts.base(item.key);
    return null;
  }

  /** @param {number} index of the item that is to be seen */
  show(index) {
    const top = index * HEIGHT, room = this.scroll.clientHeight - HEIGHT * 2;
    if (top < this.scroll.scrollTop) this.scroll.scrollTop = top;
    else if (top > this.scroll.scrollTop + room) this.scroll.scrollTop = top - room;
    this.drawLines();
  }
}

/** @param {Column} column */
function classOf(column) {
  return `${column.kind === "number" ? "number" : "other"}${column.group === "setting" ? " own" : ""}`;
}

/** @param {number} height */
function spacer(height) {
  const made = element("tr", { class: "spacer", "aria-hidden": "true" });
  made.style.height = `${height}px`;
  return made;
}
