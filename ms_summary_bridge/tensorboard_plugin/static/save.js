// Files of what is shown: the table as CSV, a chart as CSV or PNG.

import { download } from "./dom.js";
import { exact } from "./format.js";
import { colour } from "./theme.js";

/** @typedef {import("./types").Curve} Curve */

/**
 * A cell of CSV. A text that a spreadsheet would take for a formula gets a quote before it.
 *
 * @param {unknown} value
 */
export function csvCell(value) {
  const text = typeof value === "number" ? String(value) : exact(value);
  const safe = typeof value !== "number" && /^[=+\-@\t\r]/.test(text) && !Number.isFinite(Number(text)) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** @param {unknown[][]} lines */
function saveCsv(/** @type {string} */ name, lines) {
  const text = lines.map((line) => line.map(csvCell).join(",")).join("\r\n");
  download(name, new Blob([`${text}\r\n`], { type: "text/csv;charset=utf-8" }));
}

/**
 * @param {import("./types").Row[]} rows
 * @param {import("./types").Column[]} columns
 */
export function tableCsv(rows, columns) {
  const values = columns.filter((column) => column.kind !== "spark" && column.id !== "age");
  /** @param {import("./types").Row} row @param {import("./types").Column} column */
  const read = (row, column) => {
    if (column.id === "state") return row.state;
    if (column.id === "health") return row.health.text || "ok";
    return column.read(row);
  };
  saveCsv("runs.csv", [["run", ...values.map((column) => column.title)], ...rows.map((row) => [row.name, ...values.map((column) => read(row, column))])]);
}

/**
 * @param {string} title
 * @param {Curve[]} curves
 * @param {string} axis
 */
export function chartCsv(title, curves, axis) {
  saveCsv(`${fileName(title)}.csv`, [["run", axis === "time" ? "seconds" : "step", title],
    ...curves.flatMap((curve) => curve.xs.map((x, index) => [curve.name, x, curve.ys[index]]))]);
}

/**
 * The chart as it is drawn, with its title above and the names of its curves below.
 *
 * @param {string} title
 * @param {Curve[]} curves
 * @param {import("./plot.js").Plot} plot
 */
export function chartPicture(title, curves, plot) {
  const source = plot.chart?.ctx.canvas;
  if (source === undefined) return;
  const ratio = window.devicePixelRatio, line = 18 * ratio, pad = 12 * ratio;
  const canvas = document.createElement("canvas");
  canvas.width = source.width + 2 * pad;
  canvas.height = source.height + 2 * pad + line * (curves.length + 2);
  const context = canvas.getContext("2d");
  if (context === null) return;
  context.fillStyle = colour("card");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = colour("text");
  context.font = `600 ${14 * ratio}px Roboto, sans-serif`;
  context.fillText(title, pad, pad + line * 0.8);
  context.drawImage(source, pad, pad + line * 1.5);
  context.font = `${12 * ratio}px Roboto, sans-serif`;
  curves.forEach((curve, index) => {
    const y = pad + line * (index + 2) + source.height;
    context.fillStyle = curve.colour;
    context.fillRect(pad, y - 9 * ratio, 10 * ratio, 10 * ratio);
    context.fillStyle = colour("text");
    context.fillText(curve.name, pad + 16 * ratio, y);
  });
  canvas.toBlob((blob) => {
    if (blob !== null) download(`${fileName(title)}.png`, blob);
  });
}

/** @param {string} title */
function fileName(title) {
  return title.replaceAll(/[^\w.-]+/g, "_") || "chart";
}
