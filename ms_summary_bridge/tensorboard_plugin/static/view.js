// What is shown, as the address says it: a link to the page is a link to what is seen, and "back" goes back.
//
// TensorBoard leaves a plugin the keys `p.<plugin>.<name>` of its own address behind the #.

import { outerDocument } from "./theme.js";

/** @typedef {import("./types").View} View */

const PREFIX = "p.mindspore.";

/** @type {View} */
export const PLAIN = Object.freeze({
  run: "", query: "", isRegex: false, states: [], healths: [], columns: null, onlyDiffering: false, sort: "", group: "",
  pinned: [], hidden: [], showHidden: false, baseline: "", checked: [], changes: false, charts: [""], axis: "step", log: false,
  outliers: false, smoothing: 0,
});

/** @type {Record<keyof View, string>} */
const NAMES = {
  run: "run", query: "q", isRegex: "re", states: "state", healths: "health", columns: "cols", onlyDiffering: "diff",
  sort: "sort", group: "group", pinned: "pin", hidden: "hide", showHidden: "all", baseline: "base", checked: "check", changes: "changes",
  charts: "chart", axis: "x", log: "log", outliers: "out", smoothing: "smooth",
};
const REMEMBERED = /** @type {(keyof View)[]} */ (["columns", "onlyDiffering"]);

/** The window whose address says what is shown. */
function outer() {
  return outerDocument()?.defaultView ?? window;
}

/** @returns {View} */
export function readView() {
  const said = new URLSearchParams(outer().location.hash.slice(1));
  /** @type {Record<string, unknown>} */
  const view = { ...PLAIN };
  for (const name of /** @type {(keyof View)[]} */ (Object.keys(NAMES))) {
    const plain = PLAIN[name], text = said.get(PREFIX + NAMES[name]) ?? kept(name);
    if (text === null) continue;
    if (typeof plain === "boolean") view[name] = text === "1";
    else if (typeof plain === "number") view[name] = Math.min(0.99, Math.max(0, Number(text) || 0));
    else if (Array.isArray(plain) || plain === null) view[name] = readList(text);
    else view[name] = text;
  }
  if (view.axis !== "time") view.axis = "step";
  return /** @type {View} */ (/** @type {unknown} */ (view));
}

/** @param {string} text */
function readList(text) {
  try {
    const found = JSON.parse(text);
    return Array.isArray(found) ? found.map(String) : [];
  } catch {
    return [];
  }
}

/** @param {keyof View} name */
function kept(name) {
  return REMEMBERED.includes(name) ? remembered(`view-${name}`, "") || null : null;
}

/**
 * @param {View} view
 * @param {boolean} isStep whether "back" is to come back to what was shown before
 */
export function writeView(view, isStep) {
  const place = outer();
  const before = place.location.hash.slice(1);
  const parts = before.split("&").filter((part) => part && !part.startsWith(PREFIX));
  for (const name of /** @type {(keyof View)[]} */ (Object.keys(NAMES))) {
    const text = said(view, name);
    if (REMEMBERED.includes(name)) remember(`view-${name}`, text);
    if (text) parts.push(`${PREFIX}${NAMES[name]}=${encodeURIComponent(text)}`);
  }
  if (!parts.length) parts.push("");
  const hash = parts.join("&");
  if (hash === before) return;
  const address = `${place.location.pathname}${place.location.search}#${hash}`;
  place.history[isStep ? "pushState" : "replaceState"](place.history.state, "", address);
}

/**
 * @param {View} view
 * @param {keyof View} name
 * @returns {string} empty where it is as it is at first
 */
function said(view, name) {
  const value = view[name], plain = PLAIN[name];
  if (JSON.stringify(value) === JSON.stringify(plain)) return "";
  if (typeof value === "boolean") return value ? "1" : "0";
  return Array.isArray(value) ? JSON.stringify(value) : String(value ?? "");
}

/** @param {() => void} act is called when a person went back or forward, or changed the address */
export function watchView(act) {
  const place = outer();
  place.addEventListener("popstate", act);
  place.addEventListener("hashchange", act);
  window.addEventListener("pagehide", () => {
    place.removeEventListener("popstate", act);
    place.removeEventListener("hashchange", act);
  });
}

/**
 * @param {string} name
 * @param {string} fallback
 */
export function remembered(name, fallback) {
  try {
    return window.localStorage.getItem(`mindspore-page-${name}`) ?? fallback;
  } catch {
    return fallback;
  }
}

/**
 * @param {string} name
 * @param {string} value
 */
export function remember(name, value) {
  try {
    window.localStorage.setItem(`mindspore-page-${name}`, value);
  } catch {
    // storage may be switched off
  }
}
