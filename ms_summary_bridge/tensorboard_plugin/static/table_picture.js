// The table as a picture: the same lines and columns, drawn on a canvas from the cells that the table makes.

import { download } from "./dom.js";
import { colour } from "./theme.js";

const HEIGHT = 30;
const PAD = 10;
export const MOST_LINES = 400; // a canvas has its limits, and so has who looks at it
const FONT = "Roboto, sans-serif";
const BADGES = /** @type {[string, string][]} */ ([
  ["running", "on-info"], ["ended", "on-good"], ["failed", "on-bad"], ["critical", "on-bad"], ["non-finite", "on-bad"], ["stalled", "on-warn"], ["warning", "on-warn"],
]);

/**
 * @param {string} title
 * @param {number[]} widths of the columns; the first is that of the boxes, which are not drawn
 * @param {Element} head the line of headings
 * @param {Element[]} lines no more than MOST_LINES
 * @param {number} left lines that are not among them
 */
export function tablePicture(title, widths, head, lines, left) {
  const ratio = Math.min(2, Math.max(1, window.devicePixelRatio));
  const width = widths.slice(1).reduce((sum, one) => sum + one, 0) + 2 * PAD, height = (lines.length + 2 + (left ? 1 : 0)) * HEIGHT + PAD;
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  if (context === null) return;
  context.scale(ratio, ratio);
  context.textBaseline = "middle";
  context.fillStyle = colour("card");
  context.fillRect(0, 0, width, height);
  write(context, title, PAD, HEIGHT / 2, { font: `600 15px ${FONT}`, fill: colour("text") });
  [head, ...lines].forEach((line, index) => drawLine(context, line, widths, (index + 1) * HEIGHT, width));
  if (left) write(context, `and ${left} more`, PAD, height - PAD - HEIGHT / 2, { font: `12px ${FONT}`, fill: colour("soft") });
  canvas.toBlob((blob) => {
    if (blob !== null) download("runs.png", blob);
  });
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Element} line
 * @param {number[]} widths
 * @param {number} top
 * @param {number} width of the picture
 */
function drawLine(context, line, widths, top, width) {
  if (line.classList.contains("group")) {
    context.fillStyle = colour("box");
    context.fillRect(0, top, width, HEIGHT);
  }
  context.fillStyle = colour("line");
  context.fillRect(0, top + HEIGHT - 1, width, 1);
  const isBold = line.classList.contains("group") || line.querySelector("[aria-sort]") !== null;
  let x = PAD;
  [...line.children].slice(1).forEach((cell, index) => {
    const room = widths[index + 1];
    context.save();
    context.beginPath();
    context.rect(x - 4, top, room - 4, HEIGHT - 1);
    context.clip();
    if (cell.classList.contains("differs")) {
      context.fillStyle = colour("mark");
      context.fillRect(x - 4, top, room - 4, HEIGHT - 1);
    }
    const parts = partsOf(cell, isBold ? "600" : "400", colour("text"));
    const used = parts.reduce((sum, part) => sum + widthOf(context, part), 0);
    let at = cell.classList.contains("number") ? Math.max(x, x + room - 14 - used) : x;
    for (const part of parts) {
      drawPart(context, part, at, top + HEIGHT / 2);
      at += widthOf(context, part);
    }
    context.restore();
    x += room;
  });
}

/** @typedef {{text: string, weight: string, fill: string, badge?: string, dot?: boolean, line?: Element}} Part */

/**
 * What a cell is made of: texts with their colours, badges, dots and small curves.
 *
 * @param {Node} node
 * @param {string} weight
 * @param {string} fill
 * @returns {Part[]}
 */
function partsOf(node, weight, fill) {
  return [...node.childNodes].flatMap((child) => {
    if (!(child instanceof Element)) return [{ text: child.textContent ?? "", weight, fill }];
    const names = child.classList;
    if (child.tagName === "svg") return [{ text: "", weight, fill, line: child }];
    if (names.contains("dot")) return [{ text: "", weight, fill: /** @type {HTMLElement} */ (child).style.background, dot: true }];
    if (names.contains("badge") && !names.contains("quiet")) {
      const [, badge] = BADGES.find(([name]) => names.contains(name)) ?? ["", "on-soft"];
      return [{ text: child.textContent ?? "", weight: "600", fill: colour("on"), badge: colour(badge) }];
    }
    const own = ["soft", "good", "bad"].find((name) => names.contains(name)) ?? (names.contains("mark") || names.contains("quiet") ? "soft" : names.contains("name") ? "accent" : "");
    const before = names.contains("mark") ? [{ text: "  ", weight, fill }] : [];
    return [...before, ...partsOf(child, names.contains("strong") ? "600" : weight, own ? colour(own) : fill)];
  });
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Part} part
 */
function widthOf(context, part) {
  if (part.line) return Number(part.line.getAttribute("width")) + 4;
  if (part.dot) return 18;
  context.font = `${part.weight} 13px ${FONT}`;
  return context.measureText(part.text).width + (part.badge ? 18 : 0);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Part} part
 * @param {number} x
 * @param {number} middle
 */
function drawPart(context, part, x, middle) {
  if (part.line) {
    context.save();
    context.translate(x, middle - Number(part.line.getAttribute("height")) / 2);
    context.strokeStyle = colour("nan");
    for (const one of part.line.querySelectorAll("line")) context.strokeRect(Number(one.getAttribute("x1")), 0, 0.5, Number(one.getAttribute("y2")));
    context.strokeStyle = colour("info");
    context.lineWidth = 1.4;
    context.lineCap = "round";
    context.stroke(new Path2D(part.line.querySelector("path")?.getAttribute("d") ?? ""));
    context.restore();
  } else if (part.dot) {
    context.fillStyle = part.fill;
    context.beginPath();
    context.arc(x + 5, middle, 5, 0, 2 * Math.PI);
    context.fill();
  } else {
    if (part.badge) {
      context.fillStyle = part.badge;
      context.beginPath();
      context.roundRect(x, middle - 10, widthOf(context, part) - 4, 20, 4);
      context.fill();
    }
    write(context, part.text, x + (part.badge ? 7 : 0), middle, { font: `${part.weight} 13px ${FONT}`, fill: part.fill });
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} x
 * @param {number} middle
 * @param {{font: string, fill: string}} how
 */
function write(context, text, x, middle, { font, fill }) {
  context.font = font;
  context.fillStyle = fill;
  context.fillText(text, x, middle);
}
