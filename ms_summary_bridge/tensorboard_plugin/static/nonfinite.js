// Where values were NaN or infinite: a chart of their counts for each tag.

import { card, drawn, element, foldedCard } from "./dom.js";
import { brief, plural } from "./format.js";

/** @typedef {import("./types").NonFiniteChart} NonFiniteChart */

/** @param {{tags: number, affected: number, charts: NonFiniteChart[]}} found */
export function nonfiniteCard(found) {
  const title = "NaN and infinite values";
  if (!found.tags) return foldedCard(title, "Nothing is recorded that could hold one.");
  if (!found.affected) return foldedCard(title, `None in ${plural(found.tags, "tag")}.`);
  return card(title,
    element("div", { class: "legend" },
      `${found.affected} of ${plural(found.tags, "tag")}, the earliest first; number of values by step: `,
      element("i", { class: "nan" }, "NaN"), " and ", element("i", { class: "inf" }, "infinite"),
      found.affected > found.charts.length ? `; ${found.charts.length} are drawn` : ""),
    element("div", { class: "charts" }, ...found.charts.map(chart)));
}

/**
 * How many values of a run were not finite at each step, over all its tags.
 *
 * @param {{charts: NonFiniteChart[]}} found
 * @returns {[number, number][]}
 */
export function brokenSteps({ charts }) {
  /** @type {Map<number, number>} */
  const counts = new Map();
  for (const { points } of charts) for (const [step, nan, inf] of points) counts.set(step, (counts.get(step) ?? 0) + nan + inf);
  return [...counts].sort((one, other) => one[0] - other[0]);
}

/** @param {NonFiniteChart} one */
function chart(one) {
  const width = 440, height = 110, left = 46, right = 8, top = 8, bottom = 20;
  const first = Math.min(0, one.first_step), last = Math.max(one.last_step, first + 1);
  const most = Math.max(1, ...one.points.map((point) => Math.max(point[1], point[2])));
  /** @param {number} step */
  const x = (step) => left + ((step - first) / (last - first)) * (width - left - right);
  /** @param {number} count */
  const y = (count) => top + (1 - count / most) * (height - top - bottom);
  /** @param {number} step @param {string} kind @param {number} count @param {number} beside */
  const stem = (step, kind, count, beside) => drawn("g", { class: kind },
    drawn("title", {}, `step ${step}: ${count} ${kind === "nan" ? "NaN" : "infinite"}`),
    drawn("line", { x1: x(step) + beside, x2: x(step) + beside, y1: y(0), y2: y(count), "stroke-width": 1.5 }),
    drawn("circle", { cx: x(step) + beside, cy: y(count), r: 2.2 }));
  const stems = one.points.flatMap(([step, nan, inf]) => [nan > 0 && stem(step, "nan", nan, -1.5), inf > 0 && stem(step, "inf", inf, 1.5)]);
  const picture = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `NaN and infinite values of ${one.tag} by step` },
    drawn("line", { class: "axis", x1: left, x2: left, y1: top, y2: y(0) }),
    drawn("line", { class: "axis", x1: left, x2: width - right, y1: y(0), y2: y(0) }),
    drawn("text", { x: left - 5, y: top + 9, "text-anchor": "end" }, brief(most)),
    drawn("text", { x: left - 5, y: y(0) + 1, "text-anchor": "end" }, "0"),
    drawn("text", { x: left, y: height - 5 }, String(first)),
    drawn("text", { x: width - right, y: height - 5, "text-anchor": "end" }, `step ${one.last_step}`),
    ...stems);
  const counts = `from step ${one.first_step} on, in ${one.affected} of ${one.total} ${one.kind}s: ` +
    `${one.nan} NaN, ${one.pos_inf} +Inf, ${one.neg_inf} -Inf`;
  return element("div", { class: "chart" }, element("b", {}, one.tag), element("div", { class: "soft" }, counts), picture);
}
