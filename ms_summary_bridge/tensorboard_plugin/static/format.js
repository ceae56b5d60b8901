// Numbers, times and sizes as people write them.

const LARGE = /** @type {[number, string][]} */ ([[1e12, "T"], [1e9, "G"], [1e6, "M"]]);
const SPANS = /** @type {[number, string][]} */ ([[86400, "d"], [3600, "h"], [60, "min"]]);

/**
 * A value with four digits that count: 6.4e-06, 0.0312, 1234, 958 M.
 *
 * @param {unknown} value
 * @returns {string} empty for null
 */
export function brief(value) {
  if (typeof value !== "number") return exact(value);
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-4)) return exponent(value);
  for (const [unit, name] of LARGE) {
    if (size >= unit) return `${Number((value / unit).toPrecision(3))} ${name}`;
  }
  if (Number.isInteger(value)) return String(value);
  return String(Number(value.toPrecision(4)));
}

/** @param {number} value */
function exponent(value) {
  const [digits, power] = Number(value.toPrecision(3)).toExponential().split("e");
  const way = power.startsWith("-") ? "-" : "+";
  return `${digits}e${way}${power.slice(1).padStart(2, "0")}`;
}

/**
 * A value with all digits that a float32 has.
 *
 * @param {unknown} value
 * @returns {string}
 */
export function exact(value) {
  if (typeof value !== "number") return value === null || value === undefined ? "" : String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  return String(Number(value.toPrecision(7)));
}

/**
 * What a number is that is none, as people write it; the server says `nan`, `inf` and `-inf`.
 *
 * @param {unknown} value
 */
export function notFinite(value) {
  return String(value).replace("nan", "NaN").replace("inf", "Inf");
}

/** @param {number} part */
const two = (part) => String(part).padStart(2, "0");

/** @param {number} seconds since the epoch; 0 is not known */
export function moment(seconds) {
  if (!seconds) return "";
  const date = new Date(seconds * 1000);
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** @param {number} seconds a span */
export function duration(seconds) {
  const whole = Math.round(seconds);
  const days = Math.floor(whole / 86400);
  const clock = `${Math.floor((whole % 86400) / 3600)}:${two(Math.floor((whole % 3600) / 60))}:${two(whole % 60)}`;
  return days ? `${days} d ${clock}` : clock;
}

/**
 * How long ago something was: 3 min, 2 h, 5 d.
 *
 * @param {number} seconds since the epoch; 0 is not known
 * @param {number} now
 */
export function age(seconds, now) {
  if (!seconds) return "";
  const span = Math.max(0, now - seconds);
  for (const [unit, name] of SPANS) {
    if (span >= unit) return `${Math.floor(span / unit)} ${name}`;
  }
  return "now";
}

/** @param {number} bytes */
export function size(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let index = 0;
  for (; bytes >= 1024 && index < units.length - 1; index += 1) bytes /= 1024;
  return `${index ? bytes.toFixed(1) : bytes} ${units[index]}`;
}

/**
 * @param {number} count
 * @param {string} name
 */
export function plural(count, name) {
  return `${count} ${name}${count === 1 ? "" : "s"}`;
}

/**
 * Whether a value says that it is a number; the text `nan` does not.
 *
 * @param {unknown} value
 * @returns {value is number}
 */
export function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/**
 * The order of two values of a column: numbers by size, texts as people sort them, nothing last.
 *
 * @param {unknown} one
 * @param {unknown} other
 * @param {number} way 1 upwards, -1 downwards
 */
export function compare(one, other, way) {
  const isOne = one !== null && one !== undefined && one !== "", isOther = other !== null && other !== undefined && other !== "";
  if (!isOne || !isOther) return Number(isOther) - Number(isOne);
  if (typeof one === "number" && typeof other === "number") return way * (one - other);
  if (typeof one === "number" || typeof other === "number") return typeof one === "number" ? -1 : 1;
  return way * TEXTS.compare(String(one), String(other));
}

const TEXTS = new Intl.Collator(undefined, { numeric: true });
