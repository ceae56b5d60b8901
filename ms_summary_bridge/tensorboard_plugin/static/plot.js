// A chart of curves, drawn by uPlot: zoom by dragging, back by a double click, values under the pointer or the arrow keys.

import { element, watchSize } from "./dom.js";
import { brief, duration, isNumber } from "./format.js";
import { colour } from "./theme.js";
import uPlot from "./vendor/uplot.js";

/** @typedef {import("./types").Curve} Curve */
/** @typedef {{x: number, kind: string, text: string}} Mark */
/** @typedef {{curves: Curve[], axis: string, log: boolean, marks?: Mark[], broken?: [number, number][], limits?: [number, number] | null}} Drawing */

const BROKEN_HEIGHT = 8;
const MARK_HEIGHT = 12;
/** Distances of an axis's ticks: those that uPlot has end at 1e32, and a loss that goes astray at 3e38. */
const DISTANCES = Array.from({ length: 71 }, (_, index) => index - 32).flatMap((power) => [1, 2, 2.5, 5].map((part) => Number(`${part}e${power}`)));
/** There is no half of a step. */
const WHOLE_DISTANCES = DISTANCES.filter(Number.isInteger);

export class Plot {
  /**
   * @param {string} label what the chart shows, for those who do not see it
   * @param {number} height in pixels
   * @param {(values: Map<string, number | null>, x: number | null) => void} [tell] is told the values under the pointer
   */
  constructor(label, height, tell) {
    this.height = height;
    this.tell = tell;
    this.root = element("div", { class: "plot", tabindex: 0, role: "img", "aria-label": label, keydown: (event) => this.press(event) });
    /** @type {uPlot | null} */
    this.chart = null;
    /** @type {Drawing | null} */
    this.drawing = null;
    this.shape = "";
    watchSize(this.root, () => this.resize());
  }

  /** @param {Drawing} drawing */
  draw(drawing) {
    this.drawing = drawing;
    const shape = JSON.stringify([drawing.curves.map((one) => [one.key, one.colour, Boolean(one.band), one.ys.filter(isNumber).length < 3]), drawing.axis, drawing.log, drawing.limits]);
    const data = align(drawing);
    if (this.chart !== null && shape === this.shape) {
      const scale = this.chart.scales.x, before = this.chart.data[0];
      const isZoomed = before.length > 0 && (scale.min !== before[0] || scale.max !== before[before.length - 1]);
      this.chart.setData(data, !isZoomed);
      if (isZoomed) this.chart.redraw();
      return;
    }
    this.shape = shape;
    this.chart?.destroy();
    this.chart = new uPlot(this.options(drawing), data, this.root);
  }

  /** What is drawn in the colours of the theme is drawn again. */
  redraw() {
    this.chart?.redraw(false, true);
  }

  resize() {
    const width = this.root.clientWidth;
    if (this.chart !== null && width > 0 && width !== this.chart.width) {
      this.chart.setSize({ width, height: this.height });
    }
  }

  /**
   * @param {Drawing} drawing
   * @returns {uPlot.Options}
   */
  options({ curves, axis, log, limits }) {
    /** @type {uPlot.Series[]} */
    const series = [{}];
    /** @type {uPlot.Band[]} */
    const bands = [];
    for (const curve of curves) {
      const points = { show: curve.ys.filter(isNumber).length < 3, size: 5 };
      series.push({ label: curve.name, stroke: curve.colour, width: 1.6, points });
      if (curve.band) {
        series.push({ stroke: "transparent", points: { show: false } }, { stroke: "transparent", points: { show: false } });
        bands.push({ series: [series.length - 2, series.length - 1], fill: `${curve.colour}30` });
      }
    }
    const grid = { stroke: () => colour("line"), width: 1 };
    const font = "11px Roboto, sans-serif";
    return {
      width: Math.max(200, this.root.clientWidth), height: this.height, series, bands, legend: { show: false },
      scales: { x: { time: false }, y: { distr: log ? 3 : 1, ...(limits && !log ? { range: /** @type {[number, number]} */ (limits) } : {}) } },
      axes: [
        { stroke: () => colour("soft"), grid, ticks: grid, font, size: 34, incrs: axis === "time" ? undefined : WHOLE_DISTANCES,
          values: (_, ticks) => ticks.map((tick) => (axis === "time" ? duration(tick) : brief(tick))) },
        { stroke: () => colour("soft"), grid, ticks: grid, font, size: 62, incrs: log ? undefined : DISTANCES, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : brief(tick))) },
      ],
      cursor: { drag: { x: true, y: false }, focus: { prox: 24 }, dataIdx: nearest },
      focus: { alpha: 0.35 },
      hooks: {
        draw: [(chart) => this.drawBroken(chart), (chart) => this.placeMarks(chart)],
        setCursor: [(chart) => this.report(chart)],
      },
    };
  }

  /** @param {uPlot} chart */
  report(chart) {
    if (this.tell === undefined || this.drawing === null) return;
    const values = new Map();
    let at = 1;
    for (const curve of this.drawing.curves) {
      const index = chart.cursor.idxs?.[at] ?? null;
      values.set(curve.key, index === null ? null : chart.data[at][index] ?? null);
      at += curve.band ? 3 : 1;
    }
    const place = chart.cursor.idx ?? null;
    this.tell(values, place === null ? null : chart.data[0][place]);
  }

  /**
   * Draws at the foot of the chart where how much was not finite.
   *
   * @param {uPlot} chart
   */
  drawBroken(chart) {
    const broken = this.drawing?.broken ?? [];
    if (!broken.length) return;
    const { ctx, bbox } = chart;
    const ratio = window.devicePixelRatio, height = BROKEN_HEIGHT * ratio;
    const most = Math.max(...broken.map(([, count]) => count), 1);
    ctx.save();
    ctx.fillStyle = colour("nan");
    for (const [x, count] of broken) {
      const left = chart.valToPos(x, "x", true);
      if (left < bbox.left || left > bbox.left + bbox.width) continue;
      ctx.globalAlpha = 0.35 + 0.65 * (count / most);
      ctx.fillRect(left - ratio, bbox.top + bbox.height - height, 2 * ratio, height);
    }
    ctx.restore();
  }

  /**
   * Puts what happened over the chart, each as something that can be pointed at; the card "Time line" tells it in words.
   *
   * @param {uPlot} chart
   */
  placeMarks(chart) {
    const marks = this.drawing?.marks ?? [];
    chart.over.querySelectorAll(".happening").forEach((old) => old.remove());
    const width = chart.bbox.width / window.devicePixelRatio;
    /** @type {Map<number, number>} */
    const many = new Map(); // what happened at one step stands one below the other
    for (const mark of marks) {
      const left = chart.valToPos(mark.x, "x");
      if (!(left >= -1 && left <= width + 1)) continue;
      const above = many.get(mark.x) ?? 0;
      many.set(mark.x, above + 1);
      const made = element("span", { class: `happening ${mark.kind}`, title: mark.text });
      made.style.left = `${left}px`;
      made.style.top = `${Math.min(above * MARK_HEIGHT, chart.over.clientHeight / 2)}px`;
      chart.over.append(made);
    }
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    const chart = this.chart;
    if (chart === null) return;
    const xs = chart.data[0];
    if (event.key === "Escape" || event.key === "0") {
      chart.setScale("x", { min: xs[0], max: xs[xs.length - 1] });
      return;
    }
    const way = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!way || !xs.length) return;
    event.preventDefault();
    const index = Math.max(0, Math.min(xs.length - 1, (chart.cursor.idx ?? (way > 0 ? -1 : xs.length)) + way));
    chart.setCursor({ left: chart.valToPos(xs[index], "x"), top: chart.over.clientHeight / 2 });
  }
}

/**
 * @param {Drawing} drawing
 * @returns {uPlot.AlignedData}
 */
function align({ curves, log }) {
  if (!curves.length) return [[]];
  /** @param {(number | null)[]} values */
  const fit = (values) => (log ? values.map((value) => (isNumber(value) && value > 0 ? value : null)) : values);
  const tables = curves.map(({ xs, ys, band }) => {
    const parts = [xs, fit(ys)];
    if (band) {
      parts.push(fit(ys.map((value, index) => (value === null ? null : value + (band[index] ?? 0)))));
      parts.push(fit(ys.map((value, index) => (value === null ? null : value - (band[index] ?? 0)))));
    }
    return /** @type {uPlot.AlignedData} */ (parts);
  });
  return tables.length === 1 ? tables[0] : uPlot.join(tables);
}

/**
 * The nearest point that a curve has: the x of the curves differ.
 *
 * @param {uPlot} chart
 * @param {number} number of the curve
 * @param {number} index
 */
function nearest(chart, number, index) {
  const values = chart.data[number], xs = chart.data[0];
  if (isNumber(values[index])) return index;
  let before = index, after = index;
  while (before >= 0 && !isNumber(values[before])) before -= 1;
  while (after < values.length && !isNumber(values[after])) after += 1;
  if (before < 0) return after < values.length ? after : index;
  if (after >= values.length) return before;
  return xs[index] - xs[before] <= xs[after] - xs[index] ? before : after;
}
