// Curves before they are drawn: smoothing, the axis they stand on, and the mean of several with its spread.

import { isNumber } from "./format.js";
import { meanAndSpread } from "./query.js";

/** @typedef {import("./types").Curve} Curve */
/** @typedef {import("./types").Series} Series */

const GRID = 200;
const FAR = 10;

export const PALETTE = [
  "#e8710a", "#3b86f0", "#1fa85a", "#e0483d", "#a259ec", "#00a3a3", "#b59500", "#e52592", "#8d6e4a", "#6f7d8c",
];

/**
 * The moving average that TensorBoard's charts have, which does not begin at nothing.
 *
 * @param {(number | null)[]} values
 * @param {number} weight of what was before: 0 leaves all as it is
 * @returns {(number | null)[]}
 */
export function smooth(values, weight) {
  if (!weight) return values;
  let last = 0, count = 0;
  return values.map((value) => {
    if (!isNumber(value)) return null;
    last = last * weight + (1 - weight) * value;
    count += 1;
    return last / (1 - weight ** count);
  });
}

/**
 * @param {Series} series
 * @param {string} axis `step`, or `time` in seconds since the curve's first point
 * @returns {{xs: number[], ys: (number | null)[]}} with each x above the one before
 */
export function onAxis(series, axis) {
  const first = series.times[0] ?? 0;
  const places = axis === "time" ? series.times.map((time) => time - first) : series.steps;
  const order = places.map((_, index) => index);
  if (places.some((place, index) => index > 0 && place <= places[index - 1])) order.sort((one, other) => places[one] - places[other] || one - other);
  /** @type {number[]} */
  const xs = [];
  /** @type {(number | null)[]} */
  const ys = [];
  for (const index of order) {
    if (xs.length && xs[xs.length - 1] === places[index]) ys[ys.length - 1] = series.values[index];
    else {
      xs.push(places[index]);
      ys.push(series.values[index]);
    }
  }
  return { xs, ys };
}

/**
 * The mean of some curves, and how far they lie apart, at so many places.
 *
 * @param {{xs: number[], ys: (number | null)[]}[]} curves
 * @returns {{xs: number[], ys: (number | null)[], band: (number | null)[]}} `band` is the standard deviation
 */
export function meanCurve(curves) {
  const filled = curves.filter(({ xs }) => xs.length);
  const first = Math.min(...filled.map(({ xs }) => xs[0])), last = Math.max(...filled.map(({ xs }) => xs[xs.length - 1]));
  /** @type {{xs: number[], ys: (number | null)[], band: (number | null)[]}} */
  const found = { xs: [], ys: [], band: [] };
  if (!filled.length) return found;
  const count = last > first ? GRID : 1;
  for (let index = 0; index < count; index += 1) {
    const x = first + (last - first) * (count > 1 ? index / (count - 1) : 0);
    const mean = meanAndSpread(filled.map((curve) => valueAt(curve, x)));
    found.xs.push(x);
    found.ys.push(mean === null ? null : mean.mean);
    found.band.push(mean === null ? null : mean.std);
  }
  return found;
}

/**
 * @param {{xs: number[], ys: (number | null)[]}} curve
 * @param {number} x
 * @returns {number | null} on the line between its points; null before its first and behind its last
 */
function valueAt({ xs, ys }, x) {
  let low = 0, high = xs.length - 1;
  if (x < xs[0] || x > xs[high]) return null;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle;
  }
  const one = ys[low], other = ys[high];
  if (one === null || other === null) return one ?? other;
  return xs[high] === xs[low] ? one : one + ((other - one) * (x - xs[low])) / (xs[high] - xs[low]);
}

/**
 * @param {Curve} curve
 * @returns {{last: number | null, min: number | null, minAt: number | null, max: number | null, maxAt: number | null}}
 */
export function extremes({ xs, ys }) {
  let least = -1, most = -1, last = -1;
  ys.forEach((value, index) => {
    if (!isNumber(value)) return;
    if (least < 0 || value < /** @type {number} */ (ys[least])) least = index;
    if (most < 0 || value > /** @type {number} */ (ys[most])) most = index;
    last = index;
  });
  return { last: ys[last] ?? null, min: ys[least] ?? null, minAt: xs[least] ?? null, max: ys[most] ?? null, maxAt: xs[most] ?? null };
}

/**
 * Where most values lie, for a chart that a few far ones would flatten.
 *
 * @param {Curve[]} curves
 * @returns {[number, number] | null} null where all values are near enough to each other
 */
export function usualRange(curves) {
  const values = sorted(curves.flatMap((curve) => curve.ys));
  const near = sorted(nearOnes(curves).flatMap((curve) => curve.ys));
  if (near.length < 20) return null;
  const first = values[0], last = values[values.length - 1];
  const low = part(near, 0.15), high = part(near, 0.85), span = high - low;
  // A loss that falls as losses do is shown from its beginning; one that jumps tens of times as far is not.
  return span > 0 && last - first > 15 * span ? [Math.max(first, low - span), Math.min(last, high + span)] : null;
}

/**
 * Without the curves that lie far from most others as a whole, as does one of a training that went astray.
 *
 * @param {Curve[]} curves
 */
function nearOnes(curves) {
  const known = curves.flatMap((curve) => {
    const values = sorted(curve.ys);
    return values.length ? [{ curve, middle: part(values, 0.5), span: part(values, 0.85) - part(values, 0.15) }] : [];
  });
  if (known.length < 3) return curves;
  const middle = part(sorted(known.map((one) => one.middle)), 0.5), span = part(sorted(known.map((one) => one.span)), 0.5);
  const near = known.filter((one) => Math.abs(one.middle - middle) <= FAR * span).map((one) => one.curve);
  return near.length > known.length / 2 ? near : curves;
}

/** @param {(number | null)[]} values */
function sorted(values) {
  return values.filter(isNumber).sort((one, other) => one - other);
}

/**
 * @param {number[]} values sorted
 * @param {number} share of them that lie below what is returned
 */
function part(values, share) {
  return values[Math.floor((values.length - 1) * share)];
}
