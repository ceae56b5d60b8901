// The columns of the table: what each shows, how it is sorted, and which a person has chosen.

import { drawn, element } from "./dom.js";
import { age, brief, duration, exact, isNumber, moment, notFinite, plural } from "./format.js";

/** @typedef {import("./types").Row} Row */
/** @typedef {import("./types").Column} Column */
/** @typedef {import("./types").Setting} Setting */
/** @typedef {import("./types").SettingUse} SettingUse */

const STATES = ["non-finite", "failed", "stalled", "running", "reading", "ended", "unknown"];
const KIND_WIDTH = { badge: 110, spark: 116, number: 90, text: 90 };
const MOST_MEASURED = 300;
const MOST_SETTINGS = 12;
const MOST_EVALUATIONS = 4;
const LESS_IS_BETTER = new Set(["loss", "error", "err", "perplexity", "ppl", "mae", "mse", "rmse", "wer", "cer"]);
const STATE_WORDS = /** @type {Record<string, string>} */ ({ "non-finite": "NaN loss" });

/**
 * @param {string} state
 * @param {unknown} loss the last one, which says what it is where it is no number
 */
export function stateBadge(state, loss) {
  const word = state === "non-finite" && /^-?inf$/.test(String(loss)) ? "Inf loss" : STATE_WORDS[state] ?? state;
  return element("span", { class: `badge state ${state}` }, word);
}

/** @param {Row} row */
export function healthBadge(row) {
  const { level, text, problems } = row.health;
  if (level === "ok") return element("span", { class: "badge quiet", title: "no alarm, no NaN or infinite value, no damage" }, "ok");
  return element("span", { class: `badge ${level}`, title: [text, ...problems].join("\n") }, healthText(row));
}

/**
 * Health in as few words as a column has room for.
 *
 * @param {Row} row
 */
export function healthText({ health }) {
  const { alarms, nonfinite, damaged, problems, level } = health;
  const parts = [nonfinite ? `${nonfinite} NaN/Inf` : "", alarms ? plural(alarms, "alarm") : "", damaged ? `${damaged} damaged` : problems.length ? "unread file" : ""];
  return parts.filter(Boolean).join(" · ") || (level === "ok" ? "ok" : health.text || level);
}

/**
 * The loss in so many pixels; gaps where it was not finite.
 *
 * @param {[number, number | null][]} points
 */
function sparkline(points) {
  const width = 96, height = 20;
  const values = points.flatMap(([, value]) => (isNumber(value) ? [value] : []));
  if (points.length < 2) return element("span", { class: "soft" }, "–");
  const low = Math.min(...values), high = Math.max(...values), first = points[0][0];
  const span = Math.max(points[points.length - 1][0] - first, 1), range = high - low || 1;
  let path = "", isDown = false;
  for (const [step, value] of points) {
    if (!isNumber(value)) {
      isDown = false;
      continue;
    }
    const x = 1 + ((step - first) / span) * (width - 2), y = 1.5 + (1 - (value - low) / range) * (height - 3);
    path += `${isDown ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}${isDown ? "" : "h2m-2 0"}`; // so that one alone is seen
    isDown = true;
  }
  const broken = points.filter(([, value]) => !isNumber(value)).map(([step]) => 1 + ((step - first) / span) * (width - 2));
  return drawn("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" },
    ...broken.map((x) => drawn("line", { class: "nan", x1: x, x2: x, y1: 0, y2: height })),
    drawn("path", { d: path }));
}

/**
 * A number, its step, and how far it is from the baseline's.
 *
 * @param {unknown} value
 * @param {number | null} step
 * @param {unknown} base undefined where there is no baseline
 * @param {number} better 1 where more is better, -1 where less is
 */
function numberWithStep(value, step, base, better) {
  if (value === null || value === undefined) return [element("span", { class: "soft" }, "–")];
  const parts = [isNumber(value) ? brief(value) : element("span", { class: "bad strong" }, notFinite(value))];
  if (step !== null) parts.push(" ", element("span", { class: "soft" }, `at ${step}`));
  parts.push(...difference(value, base, better));
  return parts;
}

/**
 * @param {unknown} value
 * @param {unknown} base
 * @param {number} better
 */
export function difference(value, base, better) {
  if (!isNumber(value) || !isNumber(base) || value === base) return [];
  const way = value > base ? 1 : -1;
  const word = better === 0 ? "soft" : way === better ? "good" : "bad";
  return [" ", element("span", { class: `change ${word}` }, `${way > 0 ? "+" : "−"}${brief(Math.abs(value - base))}`)];
}

/**
 * @param {string} name
 * @returns {-1 | 0 | 1} which way an evaluation is better
 */
export function betterWay(name) {
  return name.toLowerCase().split(/[/_. -]/).some((part) => LESS_IS_BETTER.has(part) || part.endsWith("loss")) ? -1 : 1;
}

/**
 * All columns that there are, those by which runs differ most first.
 *
 * @param {Row[]} rows
 * @param {SettingUse[]} settings
 * @param {() => number} now
 * @returns {Column[]}
 */
export function findColumns(rows, settings, now) {
  const many = rows.length;
  /** @param {Partial<Column> & {id: string, title: string}} given @returns {Column} */
  const make = (given) => ({ kind: "number", group: "run", tip: "", read: () => null, distinct: many, better: 0, ...given });
  return [
    make({ id: "state", title: "State", kind: "badge", read: (row) => STATES.indexOf(row.state), show: (row) => [stateBadge(row.state, row.loss?.last)],
      tip: "What evidence says: the lineage's end, the journal, the last beat, the run's own pace" }),
    make({ id: "health", title: "Health", kind: "badge", read: (row) => ["critical", "warning", "ok"].indexOf(row.health.level),
      show: (row) => [healthBadge(row)], tip: "Alarms, values that are not finite, damaged files" }),
    make({ id: "spark", title: "Loss", kind: "spark", read: (row) => row.loss?.tag ?? null, show: (row) => [row.loss ? sparkline(row.loss.spark) : "–"] }),
    make({ id: "last", title: "Last loss", better: -1, read: (row) => row.loss?.last ?? null,
      show: (row, base) => numberWithStep(row.loss?.last, row.loss?.last_step ?? null, base?.loss?.last, -1) }),
    make({ id: "best", title: "Best loss", better: -1, read: (row) => row.loss?.best ?? null,
      show: (row, base) => numberWithStep(row.loss?.best, row.loss?.best_step ?? null, base?.loss?.best, -1) }),
    ...evaluations(rows).map((name) => make({ id: `eval/${name}`, title: `eval/${name}`, group: "evaluation", better: betterWay(name),
      read: (row) => row.eval[name]?.value ?? null, tip: "The newest of this evaluation",
      show: (row, base) => numberWithStep(row.eval[name]?.value, row.eval[name]?.step ?? null, base?.eval[name]?.value, betterWay(name)) })),
    make({ id: "age", title: "Age", read: (row) => (row.last_write || row.first_time ? -(row.last_write || row.first_time) : null),
      show: (row) => [age(row.last_write || row.first_time, now()) || "–"], tip: "Since something was last written" }),
    make({ id: "step", title: "Last step", read: (row) => row.last_step, show: (row) => [brief(row.last_step)] }),
    make({ id: "rate", title: "Throughput", read: (row) => rates(row)[0]?.[1] ?? null, better: 1,
      show: (row) => [rateText(row)] }),
    ...settings.map((setting) => settingColumn(setting, rows)),
    make({ id: "duration", title: "Duration", read: (row) => row.duration_secs, show: (row) => [duration(row.duration_secs)] }),
    make({ id: "started", title: "Started", kind: "text", read: (row) => row.first_time || null, show: (row) => [moment(row.first_time) || "–"] }),
    make({ id: "ranks", title: "Ranks", read: (row) => row.ranks, distinct: new Set(rows.map((row) => row.ranks)).size, show: (row) => [String(row.ranks)] }),
    make({ id: "format", title: "Format", kind: "text", read: (row) => row.formats.join(", "), distinct: new Set(rows.map((row) => row.formats.join())).size,
      show: (row) => [row.formats.join(", ")] }),
  ];
}

/**
 * @param {SettingUse} setting
 * @param {Row[]} rows
 * @returns {Column}
 */
function settingColumn(setting, rows) {
  const { name } = setting;
  const isText = rows.some((row) => typeof row.settings[name] === "string");
  return {
    id: `set:${name}`, title: name, kind: isText ? "text" : "number", group: "setting", better: 0, distinct: setting.distinct,
    tip: `${name}: ${plural(setting.distinct, "value")} in ${plural(setting.known, "run")}, most have ${exact(setting.usual)}`,
    read: (row) => row.settings[name] ?? null,
  };
}

/** @param {Row} row */
function rateText(row) {
  const [first, ...others] = rates(row).map(([unit, rate]) => `${brief(Number(rate.toPrecision(3)))} ${unit}`);
  if (first === undefined) return "–";
  return others.length ? element("span", { title: others.join(", ") }, first) : first;
}

/** @param {Row} row */
function rates(row) {
  return Object.entries(row.rate).reverse();
}

/** @param {Row[]} rows @returns {string[]} names of evaluations, those of most runs first */
function evaluations(rows) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const row of rows) for (const name of Object.keys(row.eval)) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].sort((one, other) => other[1] - one[1] || one[0].localeCompare(other[0])).map(([name]) => name);
}

/**
 * The columns that are shown.
 *
 * @param {Column[]} columns all of them
 * @param {string[] | null} chosen by a person; null for what is usual
 * @param {boolean} onlyDiffering leave out those in which all runs are equal
 */
export function shownColumns(columns, chosen, onlyDiffering) {
  let settings = 0, evals = 0;
  const shown = columns.filter((column) => {
    if (chosen !== null) return chosen.includes(column.id);
    if (column.group === "setting") return column.distinct > 1 && (settings += 1) <= MOST_SETTINGS;
    if (column.group === "evaluation") return (evals += 1) <= MOST_EVALUATIONS;
    return !["started", "ranks", "format"].includes(column.id) || (column.id === "ranks" && column.distinct > 1);
  });
  return onlyDiffering ? shown.filter((column) => column.distinct > 1) : shown;
}

/**
 * How wide columns are, in pixels: that of the boxes, that of names, then the others. They are as wide as the texts of
 * all rows need, so that nothing jumps while one scrolls.
 *
 * @param {Row[]} rows
 * @param {Column[]} columns
 * @param {Row | null} base the baseline
 * @param {number} room in pixels
 */
export function columnWidths(rows, columns, base, room) {
  let longest = 14;
  for (const row of rows) longest = Math.max(longest, row.name.length);
  const widths = [34, Math.min(340, Math.max(130, room * 0.32), longest * 7.2 + 44)];
  for (const column of columns) {
    let letters = column.title.length + 2;
    if (column.kind !== "spark" && column.kind !== "badge") {
      for (const row of rows.slice(0, MOST_MEASURED)) {
        const parts = column.show === undefined ? [brief(column.read(row))] : column.show(row, base);
        letters = Math.max(letters, parts.reduce((sum, part) => sum + (typeof part === "string" ? part : part.textContent ?? "").length, 0));
      }
    } else if (column.id === "health") {
      for (const row of rows) letters = Math.max(letters, healthText(row).length + 2);
    }
    widths.push(Math.min(column.id === "health" ? 290 : 240, Math.max(KIND_WIDTH[column.kind], letters * 7.3 + 26)));
  }
  return widths;
}
