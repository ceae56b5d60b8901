// The page of one run: its curve with all that happened on it, and cards for the rest. What is empty is folded.

import { healthBadge, stateBadge } from "./columns.js";
import { onAxis, PALETTE, smooth } from "./curves.js";
import { element, select } from "./dom.js";
import { brief } from "./format.js";
import { RanksCard } from "./heatmap.js";
import { pageLinks } from "./links.js";
import { brokenSteps, nonfiniteCard } from "./nonfinite.js";
import { pipelineCard } from "./pipeline.js";
import { Plot } from "./plot.js";
import { ProfilesCard } from "./profiles.js";
import { alertsCard, backButton, factsCard, lineageCard, metricsCard, milestonesCard, readingCard } from "./run_cards.js";
import { ask } from "./server.js";

/** @typedef {import("./types").Run} Run */
/** @typedef {import("./types").View} View */
/** @typedef {import("./server.js").Knowledge} Knowledge */

const POINTS = 600;
const MOST_MARKS = 200;
const KINDS = ["milestone", "alarm", "checkpoint", "restart", "evaluation", "hang", "stop", "end"];

export class RunPage {
  /**
   * @param {Knowledge} knowledge
   * @param {(change: Partial<View>, isStep?: boolean) => void} change
   * @param {(error: unknown) => void} fail
   */
  constructor(knowledge, change, fail) {
    this.knowledge = knowledge;
    this.change = change;
    this.fail = fail;
    this.key = "";
    this.tag = "";
    /** @type {View | null} */
    this.view = null;
    /** @type {Run | null} */
    this.run = null;
    this.shown = "";
    this.title = element("h2", { tabindex: -1 });
    this.badges = element("span", { class: "badges" });
    this.links = element("span");
    this.fault = element("div");
    this.value = element("output", { class: "soft" });
    this.choice = element("span");
    this.kinds = element("span", { class: "legend kinds" });
    this.plot = new Plot("Curve of this run with what happened on it", 300, (values, x) => {
      const [value] = values.values();
      this.value.textContent = x === null || value === null || value === undefined ? "" : `step ${Math.round(x)}: ${brief(value)}`;
    });
    this.empty = element("div", { class: "soft" }, "No scalar of this run can be drawn yet.");
    this.curve = element("section", { class: "card curve" }, element("div", { class: "controls" }, element("h3", {}, "Curve"), this.choice, element("span", { class: "grow" }), this.value),
      this.plot.root, this.empty, this.kinds);
    this.ranks = new RanksCard(fail);
    this.profiles = new ProfilesCard(fail);
    this.cards = element("div");
    this.root = element("div", { class: "run" },
      element("div", { class: "controls run-head" }, backButton(() => this.change({ run: "" }, true)), this.title, this.badges, element("span", { class: "grow" }), this.links),
      this.fault, this.curve, this.cards);
  }

  /**
   * @param {string} key
   * @param {View} view
   */
  async load(key, view) {
    const isOther = key !== this.key;
    this.view = view;
    this.key = key;
    if (isOther) {
      this.tag = "";
      this.run = null;
      this.root.classList.add("loading");
    }
    const run = /** @type {Run} */ (await ask(`run?key=${encodeURIComponent(key)}`));
    if (key !== this.key) return; // another one was opened meanwhile
    this.run = run;
    this.root.classList.remove("loading");
    this.draw(run);
    await this.drawCurve(run);
    if (isOther) this.title.focus();
  }

  /** @param {Run} run */
  draw(run) {
    const text = JSON.stringify(run);
    if (text === this.shown) return; // nothing new: what is scrolled or marked stays so
    this.shown = text;
    const { row } = run;
    this.title.textContent = row.name;
    this.badges.replaceChildren(stateBadge(row.state, row.loss?.last), " ", healthBadge(row), " ", element("span", { class: "soft" }, row.evidence[0] ?? ""));
    this.links.replaceChildren(pageLinks(row));
    this.fault.replaceChildren(...(run.fault ? [element("section", { class: "card problem" }, `This run could not be read to its end: ${run.fault}`)] : []));
    const places = [...this.cards.querySelectorAll(".scroll")].map((each) => each.scrollTop);
    const cards = [alertsCard(run), readingCard(run), metricsCard(run, (tag) => this.choose(tag)), milestonesCard(run), factsCard(run), lineageCard(run)];
    const ranks = this.ranks.show(run, this.knowledge.now);
    const wide = [nonfiniteCard(run.nonfinite), pipelineCard(run.pipeline), this.profiles.show(run)];
    /** @param {Element} one */
    const isFolded = (one) => one.tagName === "DETAILS";
    this.cards.replaceChildren(
      ...[ranks].filter((one) => !isFolded(one)), element("div", { class: "narrow" }, ...cards.filter((one) => !isFolded(one))), ...wide.filter((one) => !isFolded(one)),
      element("div", { class: "narrow" }, ...[ranks, ...cards, ...wide].filter(isFolded)));
    this.cards.querySelectorAll(".scroll").forEach((each, index) => { each.scrollTop = places[index] ?? 0; });
  }

  /** @param {string} tag */
  choose(tag) {
    this.tag = tag;
    if (this.run !== null) this.drawCurve(this.run).catch(this.fail);
    this.curve.scrollIntoView({ block: "nearest" });
  }

  /** @param {Run} run */
  async drawCurve(run) {
    const tag = this.tag || run.row.loss?.tag || run.metrics[0]?.tag || "";
    const tags = [...new Set([tag, ...run.metrics.map((one) => one.tag)])].filter(Boolean);
    if (!this.choice.contains(document.activeElement)) {
      this.choice.replaceChildren(tags.length ? select("Metric", tags.map((one) => [one, one]), tag, (chosen) => this.choose(chosen)) : "");
    }
    const found = tag ? await this.knowledge.series(tag, [run.row.key], POINTS) : [];
    if (run !== this.run) return;
    const series = found[0], view = /** @type {View} */ (this.view);
    this.plot.root.hidden = !series;
    this.empty.hidden = Boolean(series);
    const marks = run.timeline.filter((one) => one.step !== null).slice(-MOST_MARKS)
      .map((one) => ({ x: /** @type {number} */ (one.step), kind: one.kind, text: `${one.kind}, step ${one.step}: ${one.tag && !one.text.startsWith(`${one.tag} `) ? `${one.tag}: ` : ""}${one.text}` }));
    const broken = brokenSteps(run.nonfinite);
    this.drawKinds(new Set(marks.map((mark) => mark.kind)), broken.length > 0);
    if (!series) return;
    const { xs, ys } = onAxis(series, "step");
    this.plot.draw({ curves: [{ key: run.row.key, name: tag, colour: PALETTE[1], xs, ys: smooth(ys, view.smoothing) }], axis: "step", log: view.log, marks, broken });
  }

  /**
   * @param {Set<string>} kinds
   * @param {boolean} isBroken
   */
  drawKinds(kinds, isBroken) {
    this.kinds.replaceChildren(...KINDS.filter((kind) => kinds.has(kind)).map((kind) => element("span", {}, element("span", { class: `happening sample ${kind}` }), ` ${kind}  `)),
      isBroken ? element("span", {}, element("span", { class: "happening sample broken" }), " NaN or infinite values") : "");
  }

  redraw() {
    this.plot.redraw();
    this.ranks.paint();
  }
}
