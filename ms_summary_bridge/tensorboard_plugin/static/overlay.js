// The checked runs over each other: a chart for each tag that is asked for, and what each run's curve comes to.

import { extremes, meanCurve, onAxis, PALETTE, smooth, usualRange } from "./curves.js";
import { button, element, select, tick } from "./dom.js";
import { brief, isNumber, plural } from "./format.js";
import { Plot } from "./plot.js";
import { chartCsv, chartPicture } from "./save.js";
import { groupOf } from "./query.js";

/** @typedef {import("./types").Row} Row */
/** @typedef {import("./types").View} View */
/** @typedef {import("./types").Curve} Curve */
/** @typedef {import("./server.js").Knowledge} Knowledge */

const POINTS = 400;
const MOST_RUNS = 40;
const USUAL_RUNS = 8;
const MOST_CHARTS = 6;

export class Overlay {
  /**
   * @param {Knowledge} knowledge
   * @param {(change: Partial<View>) => void} change
   * @param {(error: unknown) => void} fail
   */
  constructor(knowledge, change, fail) {
    this.knowledge = knowledge;
    this.change = change;
    this.fail = fail;
    this.controls = element("div", { class: "controls" });
    this.note = element("span", { class: "soft" });
    this.tags = element("datalist", { id: "tags" });
    this.grid = element("div", { class: "chart-grid" });
    this.root = element("section", { class: "card overlay", "aria-label": "Curves of the checked runs" }, this.controls, this.tags, this.grid);
    /** @type {ChartCard[]} */
    this.cards = [];
    this.shown = "";
    this.more = button("+ chart", () => this.change({ charts: [...this.view().charts, ""] }));
  }

  /**
   * @param {Row[]} rows those that the table shows, in its order
   * @param {View} view
   */
  draw(rows, view) {
    const checked = view.checked.flatMap((key) => this.knowledge.rows.get(key) ?? []);
    const many = checked.length ? checked : rows.slice(0, view.group ? MOST_RUNS : USUAL_RUNS);
    const plotted = many.slice(0, MOST_RUNS);
    const first = plotted.length > 1 ? `the first ${plotted.length}` : "the first";
    this.note.textContent = checked.length
      ? `${checked.length} checked${checked.length > MOST_RUNS ? `, ${MOST_RUNS} are drawn` : ""}`
      : `nothing is checked${plotted.length ? `: ${first} of the table` : ""}`;
    this.drawControls(view);
    this.drawTags();
    while (this.cards.length > view.charts.length) this.cards.pop()?.root.remove();
    while (this.cards.length < view.charts.length) {
      const card = new ChartCard(this, this.cards.length);
      this.cards.push(card);
      this.grid.append(card.root);
    }
    this.grid.classList.toggle("several", view.charts.length > 1);
    this.cards.forEach((card) => card.load(plotted, view).catch(this.fail));
  }

  /** @param {View} view */
  drawControls(view) {
    this.more.disabled = view.charts.length >= MOST_CHARTS;
    const mark = JSON.stringify([view.axis, view.log, view.outliers, view.smoothing, view.charts.length]);
    if (mark === this.shown) return;
    this.shown = mark;
    if (this.controls.contains(document.activeElement) && this.controls.childElementCount) {
      return; // a person is at one of them, which shows already what was chosen
    }
    const slider = element("input", {
      type: "range", min: 0, max: 0.99, step: 0.01, "aria-label": "Smoothing", input: () => {
        level.textContent = slider.value;
        this.change({ smoothing: Number(slider.value) });
      },
    });
    slider.value = String(view.smoothing);
    const level = element("output", {}, String(view.smoothing));
    this.controls.replaceChildren(element("h3", {}, "Curves"), this.note, element("span", { class: "grow" }),
      select("Axis", [["step", "step"], ["time", "time"]], view.axis, (axis) => this.change({ axis: axis === "time" ? "time" : "step" })),
      tick("log", view.log, (log) => this.change({ log }), "The axis of values grows by factors"),
      tick("outliers", view.outliers, (outliers) => this.change({ outliers }), "Make room for values far from all others"),
      element("label", { class: "choice" }, element("span", { class: "soft" }, "Smoothing"), slider, level), this.more);
  }

  drawTags() {
    const tags = this.knowledge.tags.slice(0, 1000);
    if (this.tags.childElementCount === tags.length) return;
    this.tags.replaceChildren(...tags.map((one) => element("option", { value: one.tag }, plural(one.runs, "run"))));
  }

  /** @returns {View} */
  view() {
    throw new Error("set by the page");
  }

  redraw() {
    this.cards.forEach((card) => card.plot.redraw());
  }
}

/** One chart, with the tag it shows and the numbers of its curves. */
class ChartCard {
  /**
   * @param {Overlay} overlay
   * @param {number} number
   */
  constructor(overlay, number) {
    this.overlay = overlay;
    this.number = number;
    this.asked = 0;
    /** @type {Curve[]} */
    this.curves = [];
    this.title = "loss";
    this.tag = element("input", {
      type: "text", list: "tags", placeholder: "loss of each run", "aria-label": `Tag of chart ${number + 1}`, change: () => this.choose(this.tag.value.trim()),
    });
    this.plot = new Plot(`Curves of chart ${number + 1}`, 280, (values) => this.tellValues(values));
    this.legend = element("tbody");
    this.empty = element("div", { class: "soft" });
    const head = ["", "Run", "Value", "Last", "Lowest", "Highest"].map((name) => (name ? element("th", { scope: "col", class: name === "Run" ? null : "number" }, name) : element("td")));
    this.root = element("div", { class: "chart-card" },
      element("div", { class: "controls" }, this.tag, element("span", { class: "grow" }),
        button("CSV", () => chartCsv(this.title, this.curves, this.overlay.view().axis)),
        button("PNG", () => chartPicture(this.title, this.curves, this.plot)),
        number ? button("×", () => this.close(), { "aria-label": `Close chart ${number + 1}` }) : null),
      this.plot.root, this.empty,
      element("div", { class: "scroll legend", tabindex: 0, role: "region", "aria-label": "Numbers of the curves" },
        element("table", {}, element("thead", {}, element("tr", {}, ...head)), this.legend)));
  }

  /** @param {string} tag */
  choose(tag) {
    this.overlay.change({ charts: this.overlay.view().charts.map((old, index) => (index === this.number ? tag : old)) });
  }

  close() {
    this.overlay.change({ charts: this.overlay.view().charts.filter((_, index) => index !== this.number) });
  }

  /**
   * @param {Row[]} rows
   * @param {View} view
   */
  async load(rows, view) {
    const tag = view.charts[this.number] ?? "";
    if (document.activeElement !== this.tag) this.tag.value = tag;
    this.asked += 1;
    const asked = this.asked;
    const found = await this.overlay.knowledge.series(tag, rows.map((row) => row.key), POINTS);
    if (asked !== this.asked) return; // something else was asked for meanwhile
    this.title = tag || "loss";
    const byKey = new Map(found.map((series) => [series.key, onAxis(series, view.axis)]));
    const curves = rows.flatMap((row, index) => {
      const points = byKey.get(row.key);
      return points?.xs.length ? [{ key: row.key, name: row.name, colour: PALETTE[index % PALETTE.length], row, ...points }] : [];
    });
    this.curves = view.group ? meanOfGroups(curves, view.group) : curves;
    this.empty.textContent = curves.length ? "" : rows.length ? `None of these runs has a tag ${this.title}.` : "No run is shown.";
    this.plot.root.hidden = !curves.length;
    const smoothed = this.curves.map((curve) => ({ ...curve, ys: smooth(curve.ys, view.smoothing) }));
    const limits = view.outliers || view.log ? null : usualRange(smoothed);
    if (curves.length) this.plot.draw({ curves: smoothed, axis: view.axis, log: view.log, limits });
    if (limits) this.tellOutside(smoothed, limits);
    this.drawLegend();
  }

  /**
   * @param {Curve[]} curves
   * @param {[number, number]} limits
   */
  tellOutside(curves, [low, high]) {
    const outside = curves.filter(({ ys }) => ys.some(isNumber) && !ys.some((value) => value !== null && value >= low && value <= high));
    if (outside.length) this.empty.textContent = `Far from all others, and shown with “outliers”: ${outside.map((curve) => curve.name).join(", ")}.`;
  }

  drawLegend() {
    this.legend.replaceChildren(...this.curves.map((curve) => {
      const { last, min, minAt, max, maxAt } = extremes(curve);
      const dot = element("i", { class: "dot" });
      dot.style.background = curve.colour;
      /** @param {number | null} value @param {number | null} at */
      const cell = (value, at) => element("td", { class: "number" }, value === null ? "–" : brief(value),
        at === null || this.overlay.view().axis === "time" ? null : element("span", { class: "soft" }, ` at ${brief(Math.round(at))}`));
      const isBroken = curve.band === undefined && curve.ys[curve.ys.length - 1] === null; // the last number there is would be another's
      const end = isBroken ? element("td", { class: "number bad strong" }, "not finite") : cell(last, null);
      return element("tr", { "data-key": curve.key }, element("td", {}, dot), element("th", { scope: "row", title: curve.name }, curve.name),
        element("td", { class: "number value" }), end, cell(min, minAt), cell(max, maxAt));
    }));
  }

  /** @param {Map<string, number | null>} values */
  tellValues(values) {
    for (const line of this.legend.children) {
      const value = values.get(line.getAttribute("data-key") ?? "");
      const cell = line.querySelector(".value");
      if (cell) cell.textContent = value === null || value === undefined ? "" : brief(value);
    }
  }
}

/**
 * @param {(Curve & {row: Row})[]} curves
 * @param {string} group
 * @returns {Curve[]}
 */
function meanOfGroups(curves, group) {
  /** @type {Map<string, (Curve & {row: Row})[]>} */
  const groups = new Map();
  for (const curve of curves) {
    const name = groupOf(curve.row, group);
    groups.set(name, [...(groups.get(name) ?? []), curve]);
  }
  return [...groups].map(([name, members], index) => ({
    key: `group:${name}`, name: `${name} (mean of ${members.length})`, colour: PALETTE[index % PALETTE.length], ...meanCurve(members),
  }));
}
