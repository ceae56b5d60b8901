// The ranks of one run as a heat map: a line for each rank, steps from left to right, one metric as colour; or a line for
// each statistic over ranks that `aggregate` computed.

import { element, foldedCard, select, watchSize } from "./dom.js";
import { age, brief, exact, isNumber } from "./format.js";
import { stateBadge } from "./columns.js";
import { ask } from "./server.js";
import { colour } from "./theme.js";

/** @typedef {import("./types").HeatMap} HeatMapData */
/** @typedef {import("./types").Run} Run */

const COLUMNS = 200;
const MOST_HEIGHT = 420;
const FOOT = 18;
const AGGREGATE = "aggregate:";
// Viridis, at five places: it reads the same in grey and for the colour-blind.
const SCALE = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

/** @param {number} share from 0 to 1 */
function shade(share) {
  const place = Math.max(0, Math.min(1, share)) * (SCALE.length - 1), low = Math.min(Math.floor(place), SCALE.length - 2);
  const parts = SCALE[low].map((part, index) => Math.round(part + (SCALE[low + 1][index] - part) * (place - low)));
  return `rgb(${parts.join(",")})`;
}

export class RanksCard {
  /** @param {(error: unknown) => void} fail */
  constructor(fail) {
    this.fail = fail;
    this.tag = "";
    this.key = "";
    this.asked = "";
    /** @type {HeatMapData | null} */
    this.data = null;
    this.canvas = element("canvas", { class: "heat", tabindex: 0, role: "img", pointermove: (event) => this.point(event), keydown: (event) => this.press(event) });
    this.told = element("output", { class: "soft" }, "");
    this.scale = element("span", { class: "soft" });
    this.choice = element("span");
    this.table = element("tbody");
    this.at = { rank: 0, step: 0 };
    const heads = ["Rank", "State", "Step", "Loss", "Rate", "Memory, MiB", "Seen", "Host"];
    this.lines = element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Ranks" },
      element("table", {}, element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))), this.table));
    this.found = element("div");
    this.root = element("section", { class: "card ranks" }, element("div", { class: "controls" }, element("h3", {}, "Ranks"), this.choice, this.scale, element("span", { class: "grow" }), this.told),
      this.canvas, this.lines, this.found);
    this.folded = foldedCard("Ranks", "One process trained, or the ranks left nothing of their own.");
    watchSize(this.root, () => this.paint());
  }

  /**
   * @param {Run} run
   * @param {number} now
   * @returns {Element} the card
   */
  show(run, now) {
    const tags = /** @type {[string, string][]} */ ([...run.heat_tags.map((tag) => [tag, tag]),
      ...(run.aggregate?.tags ?? []).map((tag) => [AGGREGATE + tag, `${tag} (aggregate)`])]);
    if (run.ranks.length < 2 && !tags.length) return this.folded;
    this.key = run.row.key;
    if (!tags.some(([tag]) => tag === this.tag)) this.tag = (tags.find(([tag]) => /loss/i.test(tag)) ?? tags[0] ?? [""])[0];
    this.choice.replaceChildren(tags.length ? select("Metric", tags, this.tag, (tag) => {
      this.tag = tag;
      this.load(`${Math.random()}`).catch(this.fail);
    }) : "");
    this.table.replaceChildren(...run.ranks.map((rank) => element("tr", {},
      element("th", { scope: "row" }, String(rank.rank)), element("td", {}, stateBadge(rank.state, rank.loss)), element("td", { class: "number" }, brief(rank.step)),
      element("td", { class: "number", title: rank.loss_step === null ? null : `step ${rank.loss_step}` }, brief(rank.loss) || "–"),
      element("td", { class: "number" }, rank.rate === null ? "–" : `${brief(Number(rank.rate.toPrecision(3)))} ${rank.rate_unit}`),
      element("td", { class: "number" }, rank.memory === null ? "–" : brief(rank.memory)),
      element("td", {}, age(rank.last_time, now) || "–"), element("td", {}, rank.host))));
    this.lines.hidden = run.ranks.length < 2;
    this.found.replaceChildren(...(run.aggregate === null ? [] : foundOf(run.aggregate)));
    this.canvas.hidden = !tags.length;
    if (tags.length) this.load(`${run.row.last_step} ${run.row.last_write}`).catch(this.fail);
    return this.root;
  }

  /** @param {string} mark of what the run has, so that nothing is asked for twice */
  async load(mark) {
    const question = JSON.stringify([this.key, this.tag, mark]);
    if (question === this.asked) return;
    this.asked = question;
    /** @type {HeatMapData} */
    const answer = await ask(`ranks?${new URLSearchParams({
      key: this.key, tag: this.tag.replace(AGGREGATE, ""), columns: String(COLUMNS), from: this.tag.startsWith(AGGREGATE) ? "aggregate" : "ranks",
    })}`);
    if (question !== this.asked) return;
    this.data = answer;
    this.paint();
  }

  paint() {
    const { data, canvas } = this;
    const width = canvas.clientWidth;
    if (data === null || !width || !data.ranks.length || !data.steps.length) return;
    const ratio = window.devicePixelRatio;
    const line = Math.max(4, Math.min(26, Math.floor(MOST_HEIGHT / data.ranks.length)));
    const left = this.left;
    canvas.style.height = `${line * data.ranks.length + FOOT}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round((line * data.ranks.length + FOOT) * ratio);
    const context = canvas.getContext("2d");
    if (context === null) return;
    context.scale(ratio, ratio);
    // How far ranks are apart is not of the size of what they have: it has a scale of its own.
    const isOwn = data.ranks.map((rank) => rank === "std");
    const whole = rangeOf(data.values.filter((_, rank) => !isOwn[rank]));
    const [low, high] = whole;
    const cell = (width - left) / data.steps.length;
    data.values.forEach((values, rank) => {
      const [least, most] = isOwn[rank] ? rangeOf([values]) : whole;
      values.forEach((value, step) => {
        if (value === null) return;
        context.fillStyle = isNumber(value) ? shade(most > least ? (value - least) / (most - least) : 0.5) : colour("nan");
        context.fillRect(left + step * cell, rank * line, Math.ceil(cell), line - (line > 8 ? 1 : 0));
      });
    });
    context.fillStyle = colour("soft");
    context.font = "11px Roboto, sans-serif";
    context.textBaseline = "middle";
    const every = Math.ceil(14 / line);
    data.ranks.forEach((rank, index) => {
      if (index % every === 0) context.fillText(String(rank), 4, Math.max(6, index * line + line / 2));
    });
    const y = line * data.ranks.length + FOOT / 2 + 2;
    context.fillText(`step ${data.steps[0]}`, left, y);
    context.textAlign = "right";
    context.fillText(String(data.steps[data.steps.length - 1]), width, y);
    this.scale.textContent = `${data.tag}: dark ${brief(low)} to bright ${brief(high)}${isOwn.includes(true) ? ", std by itself" : ""}`;
    canvas.setAttribute("aria-label", `${data.tag} of ${data.ranks.length} ${isOwn.includes(true) ? "statistics over ranks" : "ranks"} from step ${data.steps[0]} to ${data.steps[data.steps.length - 1]}, from ${brief(low)} to ${brief(high)}`);
  }

  /** How much room the names of the lines take, in pixels. */
  get left() {
    return this.data?.ranks.some((rank) => typeof rank === "string") ? 52 : 34;
  }

  /** @param {PointerEvent} event */
  point(event) {
    if (this.data === null) return;
    const box = this.canvas.getBoundingClientRect();
    const step = Math.floor(((event.clientX - box.left - this.left) / (box.width - this.left)) * this.data.steps.length);
    const rank = Math.floor(((event.clientY - box.top) / (box.height - FOOT)) * this.data.ranks.length);
    this.tell(rank, step);
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    const moves = /** @type {Record<string, [number, number]>} */ ({ ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] });
    const move = moves[event.key];
    if (move === undefined) return;
    event.preventDefault();
    this.tell(this.at.rank + move[0], this.at.step + move[1]);
  }

  /**
   * @param {number} rank
   * @param {number} step
   */
  tell(rank, step) {
    const { data } = this;
    if (data === null || data.ranks[rank] === undefined || data.steps[step] === undefined) return;
    this.at = { rank, step };
    const value = data.values[rank][step];
    const line = data.ranks[rank];
    this.told.textContent = `${typeof line === "string" ? line : `rank ${line}`}, step ${data.steps[step]}: ${value === null ? "no value" : exact(value)}`;
  }
}

/**
 * What `aggregate` found of each rank.
 *
 * @param {import("./types").Aggregate} found
 */
function foundOf({ path, ranks, missing }) {
  const heads = ["Rank", "Values", "Last step", "Gaps", "Last to arrive", "First value that is not finite"];
  const lines = ranks.map((one) => element("tr", {}, element("th", { scope: "row" }, String(one.rank)), element("td", { class: "number" }, brief(one.values)),
    element("td", { class: "number" }, brief(one.last_step)), element("td", { class: one.gaps ? "number bad" : "number" }, brief(one.gaps)),
    element("td", { class: "number" }, `${(one.last_share * 100).toFixed(0)} %`),
    element("td", { class: one.first_bad ? "bad" : "soft" }, one.first_bad ? `${one.first_bad.tag} is ${one.first_bad.value} at step ${one.first_bad.step}` : "none")));
  return [element("div", { class: "soft path" }, `By aggregate: ${path}${missing.length ? `; nothing is left of rank ${missing.slice(0, 20).join(", ")}` : ""}`),
    element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Ranks by aggregate" }, element("table", {},
      element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))), element("tbody", {}, ...lines)))];
}

/** @param {(number | string | null)[][]} lines */
function rangeOf(lines) {
  let low = Infinity, high = -Infinity;
  for (const line of lines) {
    for (const value of line) {
      if (!isNumber(value)) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  return [low, high];
}
