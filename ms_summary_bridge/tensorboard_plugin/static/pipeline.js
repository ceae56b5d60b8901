// The data pipeline of a run, from its sources on.

import { card, drawn, element, foldedCard } from "./dom.js";

/** @typedef {import("./types").Stage} Stage */
/** @typedef {import("./types").Operation} Operation */

// So many stages, branches, operations and parameters, and so much of a text, as a person may look at.
const MOST_PARTS = 200;
const MOST_CHARACTERS = 200;

/** @param {{stages: Stage[], error: string}} found */
export function pipelineCard(found) {
  if (found.error) return card("Data pipeline", element("div", {}, found.error));
  if (!found.stages.length) return foldedCard("Data pipeline", "None is recorded for this run.");
  return card("Data pipeline", element("div", { class: "pipeline" }, chain(found.stages)));
}

/**
 * @template Part
 * @param {Part[]} parts
 * @param {(part: Part, index: number) => Node | Node[]} show
 * @returns {(Node | Node[])[]}
 */
function bounded(parts, show) {
  const shown = parts.slice(0, MOST_PARTS).map(show);
  const more = parts.length - shown.length;
  return more ? [...shown, element("div", { class: "soft" }, `and ${more} more`)] : shown;
}

/** @param {string} text */
function shortened(text) {
  const characters = [...text];
  if (characters.length <= MOST_CHARACTERS) return text;
  return `${characters.slice(0, MOST_CHARACTERS).join("")}… (${characters.length} characters)`;
}

/** @param {Stage[]} stages */
function chain(stages) {
  const steps = bounded(stages, (stage) => (stage.branches.length ? [branches(stage), arrow(), box(stage)] : box(stage)));
  return element("div", { class: "chain" }, ...steps.flatMap((step, index) => (index ? [arrow(), step].flat() : step)));
}

/** @param {Stage} stage */
function branches(stage) {
  return element("div", { class: "branches" }, ...bounded(stage.branches, chain).flat());
}

function arrow() {
  return drawn("svg", { class: "arrow", viewBox: "0 0 34 14", "aria-hidden": "true" }, drawn("path", { d: "M4 7H29M24 2L29 7L24 12" }));
}

/** @param {Stage} stage */
function box(stage) {
  const parts = [title(stage), parameters(stage)];
  if (stage.sampler) parts.push(operation(stage.sampler, "sampled by "));
  return element("div", { class: "stage" }, ...parts, ...bounded(stage.operations, (one, index) => operation(one, `${index + 1}. `)).flat());
}

/**
 * @param {Operation} one
 * @param {string} before
 */
function operation(one, before) {
  return element("div", { class: "inner" }, before, title(one), parameters(one));
}

/** @param {Operation} one */
function title(one) {
  return element("b", {}, shortened(one.name) || "(no name)");
}

/** @param {Operation} one */
function parameters(one) {
  return element("div", { class: "parameters" }, ...bounded(one.parameters, ([name, value]) =>
    element("span", {}, element("span", { class: "soft" }, `${name} `), shortened(value))).flat());
}
