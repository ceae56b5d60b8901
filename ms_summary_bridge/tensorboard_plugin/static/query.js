// Which runs are shown, and in which order: search, filters, pins, groups.

import { compare, exact, isNumber } from "./format.js";

/** @typedef {import("./types").Row} Row */
/** @typedef {import("./types").View} View */
/** @typedef {import("./types").Column} Column */
/** @typedef {import("./types").Item} Item */

export const HEALTHS = ["alarms", "NaN", "damaged", "healthy"];
const COMPARED = /^([^<>=]+?)(<=|>=|<|>|=)(.+)$/;

/**
 * @param {Row} row
 * @returns {string[]} of HEALTHS
 */
export function healthsOf(row) {
  const { alarms, nonfinite, damaged, problems, level } = row.health;
  const found = [alarms ? "alarms" : "", nonfinite ? "NaN" : "", damaged || problems.length ? "damaged" : ""].filter(Boolean);
  return found.length || level !== "ok" ? found : ["healthy"];
}

/**
 * Makes of what a person wrote a test of runs. Words are all to be found in the name, in `setting=value` or in a tag;
 * `lr>0.01` compares numbers; as a regular expression the whole is one.
 *
 * @param {string} query
 * @param {boolean} isRegex
 * @param {(row: Row) => string[]} tagsOf
 * @returns {{matches: (row: Row) => boolean, error: string}}
 */
export function makeSearch(query, isRegex, tagsOf) {
  const text = query.trim();
  if (!text) return { matches: () => true, error: "" };
  if (isRegex) {
    try {
      const expression = new RegExp(text, "i");
      return { matches: (row) => textsOf(row, tagsOf).some((one) => expression.test(one)), error: "" };
    } catch (error) {
      return { matches: () => true, error: error instanceof Error ? error.message : String(error) };
    }
  }
  const words = text.toLowerCase().split(/\s+/);
  return { matches: (row) => words.every((word) => hasWord(row, word, tagsOf)), error: "" };
}

/**
 * @param {Row} row
 * @param {string} word
 * @param {(row: Row) => string[]} tagsOf
 */
function hasWord(row, word, tagsOf) {
  const parts = COMPARED.exec(word);
  if (parts !== null) {
    const [, name, sign, value] = parts;
    const number = Number(value);
    for (const [key, known] of numbersOf(row)) {
      if (!key.toLowerCase().endsWith(name)) continue;
      if (sign === "=" ? exact(known).toLowerCase() === value || known === number : isNumber(known) && holds(known, sign, number)) return true;
    }
    if (sign !== "=") return false;
  }
  return textsOf(row, tagsOf).some((one) => one.toLowerCase().includes(word));
}

/** @param {Row} row @returns {[string, unknown][]} */
function numbersOf(row) {
  return [
    ...Object.entries(row.settings),
    ...Object.entries(row.eval).map(([name, one]) => /** @type {[string, unknown]} */ ([`eval/${name}`, one.value])),
    ["loss", row.loss?.last], ["best", row.loss?.best], ["step", row.last_step], ["ranks", row.ranks],
  ];
}

/**
 * @param {number} known
 * @param {string} sign
 * @param {number} number
 */
function holds(known, sign, number) {
  if (sign === "<") return known < number;
  if (sign === ">") return known > number;
  return sign === "<=" ? known <= number : known >= number;
}

/**
 * @param {Row} row
 * @param {(row: Row) => string[]} tagsOf
 */
function textsOf(row, tagsOf) {
  return [row.name, ...Object.entries(row.settings).map(([name, value]) => `${name}=${exact(value)}`), ...tagsOf(row)];
}

/**
 * @param {Row[]} rows all of them
 * @param {View} view
 * @param {(row: Row) => boolean} matches what is searched for
 * @returns {Row[]}
 */
export function filterRows(rows, view, matches) {
  const hidden = new Set(view.hidden);
  return rows.filter((row) =>
    (view.showHidden || !hidden.has(row.key))
    && (!view.states.length || view.states.includes(row.state))
    && (!view.healths.length || healthsOf(row).some((health) => view.healths.includes(health)))
    && matches(row));
}

/**
 * @param {Row[]} rows
 * @param {string} sort a column's id, with `-` before it for downwards; empty is newest first
 * @param {Column[]} columns
 * @returns {Row[]}
 */
export function sortRows(rows, sort, columns) {
  const way = sort.startsWith("-") ? -1 : 1;
  const id = sort.replace(/^-/, "");
  const read = id === "name" ? (/** @type {Row} */ row) => row.name : columns.find((column) => column.id === id)?.read;
  const sorted = [...rows];
  if (read === undefined) return sorted.sort((one, other) => newest(other) - newest(one) || compare(one.name, other.name, 1));
  return sorted.sort((one, other) => compare(read(one), read(other), way) || compare(one.name, other.name, 1));
}

/** @param {Row} row */
function newest(row) {
  return row.first_time || row.last_write;
}

/**
 * What a row's group is called.
 *
 * @param {Row} row
 * @param {string} group `folder`, or `set:` and a setting
 */
export function groupOf(row, group) {
  if (group === "folder") return row.group || "(no folder)";
  const name = group.replace(/^set:/, "");
  const value = row.settings[name];
  return value === undefined ? `${name}: not set` : `${name} = ${exact(value)}`;
}

/**
 * @param {Row[]} rows sorted
 * @param {View} view
 * @param {Set<string>} closed groups whose rows are not shown
 * @returns {Item[]}
 */
export function listItems(rows, view, closed) {
  const pins = new Set(view.pinned);
  if (view.baseline) pins.add(view.baseline);
  /** @type {(row: Row) => Item} */
  const item = (row) => ({ kind: "row", key: row.key, row, isPinned: pins.has(row.key) });
  const pinned = rows.filter((row) => pins.has(row.key)).map(item);
  if (!view.group) return [...pinned, ...rows.filter((row) => !pins.has(row.key)).map(item)];
  /** @type {Map<string, Row[]>} */
  const groups = new Map();
  for (const row of rows) {
    const name = groupOf(row, view.group);
    const members = groups.get(name);
    if (members) members.push(row);
    else groups.set(name, [row]);
  }
  /** @type {Item[]} */
  const items = [...pinned];
  for (const [title, members] of groups) {
    const isOpen = !closed.has(title);
    items.push({ kind: "group", key: `group:${title}`, title, rows: members, isOpen });
    if (isOpen) items.push(...members.filter((row) => !pins.has(row.key)).map(item));
  }
  return items;
}

/**
 * Mean and spread of what is a number.
 *
 * @param {unknown[]} values
 * @returns {{count: number, mean: number, std: number} | null}
 */
export function meanAndSpread(values) {
  const numbers = values.filter(isNumber);
  if (!numbers.length) return null;
  const mean = numbers.reduce((sum, value) => sum + value, 0) / numbers.length;
  const square = numbers.reduce((sum, value) => sum + (value - mean) ** 2, 0) / numbers.length;
  return { count: numbers.length, mean, std: Math.sqrt(square) };
}
