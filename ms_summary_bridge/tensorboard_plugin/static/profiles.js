// Profiles that lie beside a run: a download of each trace, and where the time of a step goes.

import { element, foldedCard } from "./dom.js";
import { plural, size } from "./format.js";
import { ask } from "./server.js";

/** @typedef {import("./types").Run} Run */
/** @typedef {import("./types").Profile} Profile */
/** @typedef {import("./types").ProfileTimes} ProfileTimes */

const OPEN = 1; // so many are read without being asked for
const NUMBERS = new Intl.NumberFormat("en-US", { minimumFractionDigits: 3, maximumFractionDigits: 3 });

export class ProfilesCard {
  /** @param {(error: unknown) => void} fail */
  constructor(fail) {
    this.fail = fail;
    this.shown = "";
    this.title = element("h3");
    this.list = element("div");
    this.root = element("section", { class: "card profiles" }, this.title, this.list,
      element("div", { class: "soft" }, "Open a trace_view.json in MindStudio Insight, chrome://tracing or ui.perfetto.dev."));
    this.folded = foldedCard("Profiles", "No *_ascend_ms directory of MindSpore's profiler lies beside this run.");
  }

  /**
   * @param {Run} run
   * @returns {Element} the card
   */
  show({ profiles, row }) {
    const mark = JSON.stringify([row.key, profiles]);
    if (mark !== this.shown) {
      this.shown = mark;
      this.title.textContent = `Profiles (${profiles.length})`;
      this.list.replaceChildren(...profiles.map((one, index) => this.profile(row.key, one, index < OPEN)));
    }
    return profiles.length ? this.root : this.folded;
  }

  /**
   * @param {string} key of the run
   * @param {Profile} one
   * @param {boolean} isOpen
   */
  profile(key, one, isOpen) {
    const query = new URLSearchParams({ key, number: String(one.number) });
    const about = element("span", { class: "soft" });
    const body = element("div", { class: "scroll times", tabindex: 0, role: "region", "aria-label": `Times of ${one.name}` });
    let isAsked = false;
    const read = async () => {
      isAsked = true;
      body.textContent = "reading…";
      try {
        const times = /** @type {ProfileTimes} */ (await ask(`times?${query}`));
        about.textContent = `, ${times.steps ? plural(times.steps, "step") : "without times of steps"}${times.rank === null ? "" : `, rank ${times.rank}`}`;
        body.replaceChildren(...timesOf(times));
      } catch (error) {
        isAsked = false;
        body.textContent = "";
        this.fail(error);
      }
    };
    const link = one.path ? element("a", { href: `profile?${query}`, download: "trace_view.json", title: one.path, "aria-label": `Download the trace of ${one.name}` }, "Download the trace") : "no trace_view.json";
    return element("details", {
      open: isOpen ? "" : null, toggle: (event) => {
        if (event.target.open && !isAsked) read();
      },
    }, element("summary", { title: one.directory }, element("b", {}, one.name), about),
    element("div", {}, link, one.path ? element("span", { class: "soft" }, ` ${size(one.bytes)}`) : null), body);
  }
}

/** @param {ProfileTimes} times */
function timesOf({ parts, operators, source, problems }) {
  /** @type {Element[]} */
  const made = [];
  if (parts.length) {
    made.push(table("Mean of a step", ["Part of a step", "Mean, ms", "Share"], parts.map((one) => [one.name, milliseconds(one.mean_us), one.share])));
  }
  if (operators.length) {
    made.push(table("Operators that take the most time", ["Operator", "Core", "Count", "Total, ms", "Share"],
      operators.map((one) => [one.type, one.core, one.count.toLocaleString("en-US"), milliseconds(one.total_us), one.share]), source));
  }
  if (!parts.length && !operators.length) made.push(element("div", { class: "soft" }, "It has neither times of steps nor of operators."));
  if (problems.length) made.push(element("ul", { class: "bad" }, ...problems.map((text) => element("li", {}, text))));
  return made;
}

/** @param {number} microseconds */
function milliseconds(microseconds) {
  return NUMBERS.format(microseconds / 1000);
}

/**
 * @param {string} title
 * @param {string[]} heads
 * @param {(string | number | null)[][]} rows the last of each is a share from 0 to 1; null for a part of others
 * @param {string} [tip]
 */
function table(title, heads, rows, tip) {
  const texts = heads.findIndex((head) => /ms|Count/.test(head));
  /** @param {number} index */
  const kind = (index) => (index >= texts ? "number" : null);
  const lines = rows.map((row) => element("tr", {}, ...row.map((value, index) => {
    if (index === 0) return element("th", { scope: "row" }, value === null ? "" : String(value));
    if (index < row.length - 1) return element("td", { class: kind(index) }, String(value));
    const bar = element("i", { class: "share" });
    bar.style.width = `${Math.round(Number(value) * 90)}px`;
    return element("td", { class: "shares" }, value === null ? element("span", { class: "soft" }, "overlaps") : [bar, `${(Number(value) * 100).toFixed(1)} %`]);
  })));
  return element("table", { title: tip }, element("caption", {}, title),
    element("thead", {}, element("tr", {}, ...heads.map((head, index) => element("th", { scope: "col", class: index === heads.length - 1 ? null : kind(index) }, head)))),
    element("tbody", {}, ...lines));
}
