// What a run's page tells in words: facts, alarms, damage, lineage, numbers of its tags.

import { button, card, element, foldedCard, pairs } from "./dom.js";
import { brief, duration, exact, moment, notFinite, plural, size } from "./format.js";
import { stateBadge } from "./columns.js";

/** @typedef {import("./types").Run} Run */

const SEVERITIES = ["critical", "warning", "info"];
const MOST_METRICS = 500;

/** @param {Run} run */
export function factsCard(run) {
  const { row, lineage } = run;
  /** @type {[string, import("./dom.js").Child][]} */
  const facts = [
    ["State", element("span", {}, stateBadge(row.state, row.loss?.last), ` ${row.evidence[0] ?? ""}`)],
    ["Directory", run.directory],
  ];
  if (run.files) {
    const waiting = row.is_read ? "" : " (reading…)";
    facts.push(["Read", `${plural(run.events, "event")} in ${plural(run.files, "file")}, ${size(run.bytes)}${waiting}`]);
  }
  if (row.first_time) facts.push(["Trained", `${moment(row.first_time)}, for ${duration(row.duration_secs)}`]);
  if (lineage.start_time) facts.push(["Session", `${moment(lineage.start_time)} – ${moment(lineage.end_time) || "?"}`]);
  if (row.evidence.length > 1) facts.push(["Evidence", element("ul", {}, ...row.evidence.map((text) => element("li", {}, text)))]);
  const told = new Set(lineage.hparams.map(([name]) => name));
  for (const [name, value] of Object.entries(row.settings)) if (!told.has(name)) facts.push([name, exact(value)]);
  return card("This run", scroll("Facts", pairs(facts)));
}

/**
 * @param {string} label
 * @param {...(Node | Node[])} children
 */
function scroll(label, ...children) {
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, ...children);
}

/** @param {Run} run */
export function alertsCard(run) {
  const { journal } = run;
  if (journal === null) return foldedCard("Alerts", "No monitor wrote a journal for this run.");
  const total = Object.values(journal.alert_counts).reduce((sum, count) => sum + count, 0);
  const warnings = Object.entries(journal.warning_counts).map(([name, count]) => `${name} ${count}`).join(", ");
  if (!total && !warnings && !journal.stop) return foldedCard("Alerts", `The monitor raised none. Journal: ${journal.directory}`);
  const items = journal.alerts.map((alert) =>
    element("div", { class: `alert ${SEVERITIES.includes(alert.severity ?? "") ? alert.severity : "unknown"}` },
      element("b", {}, `${alert.severity ?? ""} ${alert.rule ?? ""}`),
      element("span", { class: "soft" }, ` step ${alert.step}, rank ${alert.rank}, ${moment(alert.wall_time)}`),
      element("p", {}, alert.message ?? ""),
      alert.advice ? element("p", { class: "soft" }, alert.advice) : null));
  const made = card(`Alerts (${total})`,
    journal.stop ? element("p", { class: "bad" }, journal.stop) : null,
    items.length ? scroll("Alerts", items) : element("div", { class: "soft" }, "The monitor raised none."),
    total > items.length ? element("div", { class: "soft" }, `The newest ${items.length} are shown.`) : null,
    warnings ? element("p", {}, element("span", { class: "soft" }, "Warnings: "), warnings) : null,
    element("div", { class: "soft path" }, `Journal: ${journal.directory}`));
  made.classList.add("alerts");
  return made;
}

/** @param {Run} run */
export function lineageCard({ lineage }) {
  const rows = [...lineage.hparams, ...lineage.metrics].map(([name, value]) => /** @type {[string, string]} */ ([name, exact(value)]));
  if (!rows.length) return foldedCard("Lineage", "None is recorded for this run yet.");
  const table = pairs(rows);
  table.classList.add("lineage");
  return card("Lineage", scroll("Lineage", table),
    lineage.parts.length ? element("div", { class: "soft" }, `Recorded: ${lineage.parts.join(", ")}`) : null);
}

/** @param {Run} run */
export function readingCard(run) {
  const found = run.reading;
  /** @param {string} text */
  const inside = (text) => (text.startsWith(`${run.directory}/`) ? text.slice(run.directory.length + 1) : text);
  const items = [
    ...found.problems.filter((text) => !found.damaged.some((one) => text.includes(`bytes ${one.start} to ${one.end} `))).map(inside),
    ...found.damaged.map((one) => `${inside(one.file)}: bytes ${one.start} to ${one.end} are damaged: ${one.reason}`),
    ...found.incomplete.map((one) => `${inside(one.file)}: ends inside a record, at byte ${one.offset} (it may still grow)`),
    ...found.lost,
  ];
  if (found.damaged_count > found.damaged.length) items.push(`and ${found.damaged_count - found.damaged.length} more damaged places`);
  if (!items.length) return foldedCard("Damage and losses", "Everything could be read.");
  const made = card("Damage and losses", scroll("Damage and losses", element("ul", {}, ...items.map((text) => element("li", {}, text)))));
  made.classList.add(found.damaged_count || found.problems.length ? "problem" : "notice", "reading");
  return made;
}

/**
 * Lowest, highest and last of every tag.
 *
 * @param {Run} run
 * @param {(tag: string) => void} choose draws a tag's curve
 */
export function metricsCard({ metrics }, choose) {
  if (!metrics.length) return foldedCard("Metrics", "No scalar is recorded for this run yet.");
  const heads = ["Metric", "Last", "Lowest", "Highest", "Mean", "Points"];
  /** @param {unknown} value @param {number | null} step */
  const cell = (value, step) => element("td", { class: "number", title: exact(value) }, typeof value === "string" ? notFinite(value) : brief(value) || "–",
    step === null ? null : element("span", { class: "soft" }, ` at ${step}`));
  const lines = metrics.slice(0, MOST_METRICS).map((one) => element("tr", {},
    element("th", { scope: "row" }, element("button", { type: "button", class: "name", title: `Draw ${one.tag}`, click: () => choose(one.tag) }, one.tag)),
    cell(one.last, one.last_step), cell(one.min, one.min_step), cell(one.max, one.max_step), cell(one.mean, null),
    element("td", { class: "number" }, String(one.count), one.nonfinite ? element("span", { class: "bad" }, ` (${one.nonfinite} not finite)`) : null)));
  return card(`Metrics (${metrics.length})`, scroll("Metrics", element("table", { class: "metrics" },
    element("thead", {}, element("tr", {}, ...heads.map((head, index) => element("th", { scope: "col", class: index ? "number" : null }, head)))),
    element("tbody", {}, ...lines))));
}

/**
 * What happened, by step, for those who read it better than they see it.
 *
 * @param {Run} run
 */
export function milestonesCard({ timeline }) {
  if (!timeline.length) return foldedCard("Time line", "No milestone, alarm, checkpoint, restart or evaluation is recorded.");
  const lines = timeline.map((one) => element("tr", {},
    element("td", {}, element("span", { class: `happening-kind ${one.kind} ${one.severity}` }, one.kind)),
    element("td", { class: "key" }, one.step === null ? "" : `step ${one.step}`), element("td", { class: "key" }, moment(one.wall_time)),
    element("td", {}, one.tag && !one.text.startsWith(`${one.tag} `) ? element("b", {}, `${one.tag}: `) : null, one.text)));
  return card(`Time line (${timeline.length})`, scroll("Time line", element("table", { class: "happenings" }, element("tbody", {}, ...lines))));
}

/** @param {() => void} act */
export function backButton(act) {
  return button("← Runs", act, { title: "Back to all runs (Escape)" });
}
