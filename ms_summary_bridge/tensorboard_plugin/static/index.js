// The page "MindSpore" in TensorBoard: a comparison of the runs, and below it all about the one that is chosen.
//
// One module without a build step and without anything from elsewhere. Every text that comes from a log goes into the
// page as a text node or an attribute's value, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const POLL_MS = 5000;
const POLL_WHILE_READING_MS = 1000;
const MOST_COLUMNS = 30;
const THEMES = ["auto", "light", "dark"];

const STYLE = `
:root {
  --page: #f5f6f7; --card: #ffffff; --text: #1f2328; --soft: #59636e; --line: #d5dae0; --accent: #b84300;
  --chosen: #fff1e6; --mark: #ffe9a8; --good: #1a7f37; --bad: #c4231c; --warn: #8a5a00; --info: #0b5cad;
  --nan: #c4231c; --inf: #0b5cad; --box: #f0f4f8;
  color-scheme: light;
}
:root[data-theme="dark"] {
  --page: #303030; --card: #3a3a3a; --text: #f0f0f0; --soft: #b8bec5; --line: #565b61; --accent: #ff9d5c;
  --chosen: #4d4034; --mark: #6b5600; --good: #6fdd8b; --bad: #ff8f85; --warn: #f2c24b; --info: #7cbcff;
  --nan: #ff8f85; --inf: #7cbcff; --box: #45494e;
  color-scheme: dark;
}
* { box-sizing: border-box; }
body { margin: 0; padding: 16px 20px 40px; background: var(--page); color: var(--text);
  font: 14px/1.45 Roboto, "Noto Sans", "Noto Sans CJK SC", "Microsoft YaHei", Helvetica, Arial, sans-serif; }
header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 14px; margin-bottom: 12px; }
h1 { font-size: 20px; margin: 0; font-weight: 500; }
h2 { font-size: 17px; margin: 24px 0 10px; font-weight: 500; overflow-wrap: anywhere; }
h3 { font-size: 14px; margin: 0 0 8px; font-weight: 600; }
.grow { flex: 1; } .soft { color: var(--soft); } .path { overflow-wrap: anywhere; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 12px 14px; margin: 0 0 14px; }
.narrow { columns: 440px; column-gap: 14px; margin-bottom: 14px; } .narrow .card { break-inside: avoid; }
.scroll { overflow: auto; max-height: 60vh; }
table { border-collapse: collapse; font-size: 13px; }
th, td { text-align: left; vertical-align: top; padding: 4px 14px 4px 0; border-bottom: 1px solid var(--line); }
td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; white-space: pre-wrap; }
tr:last-child > td { border-bottom: 0; }
.runs { width: 100%; } .runs th, .runs td { padding: 5px 10px; white-space: nowrap; max-width: 26em; overflow: hidden; text-overflow: ellipsis; }
.runs th { position: sticky; top: 0; background: var(--card); z-index: 1; }
.runs th.own { border-left: 1px solid var(--line); } .runs td.number, .runs th.number { text-align: right; }
.runs tbody tr { cursor: pointer; } .runs tbody tr:hover { background: var(--box); }
.runs tr[aria-selected="true"], .runs tr[aria-selected="true"]:hover { background: var(--chosen); }
.differs { background: var(--mark); }
button { font: inherit; color: inherit; background: none; border: 0; padding: 0; cursor: pointer; text-align: inherit; }
button.name { color: var(--accent); font-weight: 500; max-width: 24em; overflow: hidden; text-overflow: ellipsis; }
button.plain { border: 1px solid var(--line); border-radius: 4px; padding: 2px 10px; background: var(--card); }
th button { font-weight: 600; }
button:focus-visible, tr:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
.state { font-weight: 600; } .running { color: var(--info); } .ended { color: var(--good); }
.failed, .critical { color: var(--bad); } .stalled, .warning { color: var(--warn); } .unknown, .info { color: var(--soft); }
.problem { border-left: 4px solid var(--bad); } .notice { border-left: 4px solid var(--warn); }
.key { color: var(--soft); white-space: nowrap; }
ul { margin: 4px 0; padding-left: 20px; } li { overflow-wrap: anywhere; white-space: pre-wrap; }
.alert { border-left: 4px solid; padding: 2px 0 2px 10px; margin: 8px 0; } .alert p { margin: 2px 0; color: var(--text); overflow-wrap: anywhere; white-space: pre-wrap; }
.chain { display: flex; flex-wrap: wrap; align-items: center; gap: 8px 0; }
.stage { border: 1px solid var(--line); border-top: 3px solid var(--accent); border-radius: 5px; background: var(--box);
  padding: 6px 10px; max-width: 380px; font-size: 12px; }
.stage b { font-size: 13px; overflow-wrap: anywhere; } .stage div { overflow-wrap: anywhere; }
.parameters { display: flex; flex-wrap: wrap; gap: 0 12px; }
.stage .inner { border: 1px solid var(--line); border-radius: 4px; padding: 2px 7px; margin-top: 4px; background: var(--card); }
.branches { display: flex; flex-direction: column; gap: 10px; border: 1px dashed var(--line); border-radius: 6px; padding: 8px; }
.arrow { width: 34px; height: 14px; flex: none; } .arrow path { stroke: var(--soft); fill: none; stroke-width: 1.5; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(420px, 100%), 1fr)); gap: 14px 22px; }
.chart svg { display: block; width: 100%; height: auto; } .chart text { fill: var(--soft); font-size: 11px; }
.chart .axis { stroke: var(--line); } .nan { stroke: var(--nan); fill: var(--nan); } .inf { stroke: var(--inf); fill: var(--inf); }
.chart b { overflow-wrap: anywhere; } .legend { font-size: 12px; margin-bottom: 10px; } .legend i { font-style: normal; font-weight: 700; }
.legend .nan { color: var(--nan); } .legend .inf { color: var(--inf); }
`;

// ------------------------------------------------------------------ elements

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  fill(made, attributes, children);
  return made;
}

function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  fill(made, attributes, children);
  return made;
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
}

function card(title, ...children) {
  return element("section", { class: "card" }, element("h3", {}, title), ...children);
}

function pairs(rows) {
  const lines = rows.map(([name, value]) => element("tr", {}, element("td", { class: "key" }, name), element("td", {}, value)));
  return element("table", {}, element("tbody", {}, ...lines));
}

// ------------------------------------------------------------------ numbers and times

function number(value) {
  if (typeof value !== "number") return value === null || value === undefined ? "" : String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  return String(Number(value.toPrecision(6)));
}

function moment(seconds) {
  if (!seconds) return "";
  const date = new Date(seconds * 1000);
  const two = (part) => String(part).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

function duration(seconds) {
  const whole = Math.round(seconds);
  const two = (part) => String(part).padStart(2, "0");
  const days = Math.floor(whole / 86400);
  const clock = `${Math.floor((whole % 86400) / 3600)}:${two(Math.floor((whole % 3600) / 60))}:${two(whole % 60)}`;
  return days ? `${days} d ${clock}` : clock;
}

function size(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let index = 0;
  for (; bytes >= 1024 && index < units.length - 1; index += 1) bytes /= 1024;
  return `${index ? bytes.toFixed(1) : bytes} ${units[index]}`;
}

function plural(count, name) {
  return `${count} ${name}${count === 1 ? "" : "s"}`;
}

// ------------------------------------------------------------------ comparison

const COLUMNS = [
  ["Run", (row) => row.name, ""],
  ["State", (row) => row.state, ""],
  ["Last step", (row) => row.last_step, "number"],
  ["Best loss", (row) => (row.best_loss ? row.best_loss.value : null), "number"],
  ["Throughput", (row) => Object.values(row.throughput).pop() ?? null, "number"],
  ["Started", (row) => row.first_time, ""],
  ["Duration", (row) => row.duration_secs, "number"],
  ["Alerts", (row) => row.alerts, "number"],
  ["NaN/Inf tags", (row) => row.nonfinite, "number"],
  ["Damaged", (row) => row.damaged, "number"],
];

function cells(row) {
  const best = row.best_loss;
  const rates = Object.entries(row.throughput).reverse();
  return [
    element("td", {}, element("button", { class: "name", title: row.name }, row.name)),
    element("td", { title: row.why }, element("span", { class: `state ${row.state}` }, row.state), row.is_read ? "" : " (reading…)"),
    element("td", { class: "number" }, number(row.last_step)),
    element("td", { class: "number", title: best ? best.tag : "" }, best ? `${number(best.value)} at ${best.step}` : "–"),
    element("td", { class: "number" }, rates.map(([unit, rate]) => `${number(Number(rate.toPrecision(4)))} ${unit}`).join(", ") || "–"),
    element("td", {}, moment(row.first_time) || "–"),
    element("td", { class: "number" }, duration(row.duration_secs)),
    ...["alerts", "nonfinite", "damaged"].map((name) =>
      element("td", { class: "number" }, element("span", { class: row[name] ? "failed" : "soft" }, String(row[name])))),
  ];
}

function comparison(data, page) {
  const different = Object.entries(data.config.different);
  const shown = different.slice(0, MOST_COLUMNS);
  const columns = [...COLUMNS, ...shown.map(([name]) => [name, (row) => row.config[name] ?? null, "own"])];
  const sorted = [...data.rows];
  if (page.sort !== null && columns[page.sort.column]) {
    const read = columns[page.sort.column][1];
    sorted.sort((one, two) => page.sort.way * compare(read(one), read(two)));
  }
  const heads = columns.map(([title, , kind], column) => {
    const isSorted = page.sort !== null && page.sort.column === column;
    const sorting = isSorted ? (page.sort.way > 0 ? "ascending" : "descending") : "none";
    const turn = () => page.sortBy(column, isSorted ? -page.sort.way : 1);
    const arrow = isSorted ? (page.sort.way > 0 ? " ↑" : " ↓") : "";
    return element("th", { scope: "col", class: kind, "aria-sort": sorting }, element("button", { click: turn, title }, title + arrow));
  });
  const lines = sorted.map((row) => {
    const own = shown.map(([name, usual]) => {
      const value = row.config[name];
      const isOther = value !== undefined && value !== usual;
      const text = value === undefined ? "–" : number(value);
      return element("td", { class: isOther ? "differs" : "", title: text, "data-config": name }, text);
    });
    const attributes = { "aria-selected": String(row.key === page.chosen), click: () => page.choose(row.key) };
    return element("tr", attributes, ...cells(row), ...own);
  });
  const about = different.length
    ? `${plural(different.length, "setting")} differ between the runs (those that are not the usual value are marked), ` +
      `${data.config.equal} are equal in all` + (different.length > shown.length ? `; ${shown.length} are shown.` : ".")
    : data.rows.length > 1 ? "No setting that is recorded differs between the runs." : "";
  return element("section", { class: "card" },
    element("h3", {}, `${plural(data.rows.length, "run")}`),
    element("div", { class: "scroll" },
      element("table", { class: "runs" }, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...lines))),
    element("div", { class: "soft" }, about, data.left_out ? ` ${plural(data.left_out, "older run")} are left out.` : ""));
}

function compare(one, two) {
  const isOne = one !== null && one !== undefined, isTwo = two !== null && two !== undefined;
  if (!isOne || !isTwo) return Number(isTwo) - Number(isOne);
  if (typeof one === "number" && typeof two === "number") return one - two;
  return String(one).localeCompare(String(two), undefined, { numeric: true });
}

// ------------------------------------------------------------------ one run

function details(run) {
  const row = run.row;
  const facts = [
    ["State", element("span", {}, element("span", { class: `state ${row.state}` }, row.state), ` – ${row.why}`)],
    ["Directory", run.directory],
  ];
  if (run.files) {
    const waiting = row.is_read ? "" : " (reading…)";
    facts.push(["Read", `${plural(run.events, "event")} in ${plural(run.files, "file")}, ${size(run.bytes)}${waiting}`]);
  }
  if (run.lineage.start_time) facts.push(["Session", `${moment(run.lineage.start_time)} – ${moment(run.lineage.end_time) || "?"}`]);
  const told = new Set(run.lineage.hparams.map(([name]) => name));
  facts.push(...Object.entries(row.config).filter(([name]) => !told.has(name)).map(([name, value]) => [name, number(value)]));
  return element("div", { class: "run" },
    element("h2", {}, row.name),
    run.fault ? element("div", { class: "card problem" }, `This run could not be read to its end: ${run.fault}`) : null,
    element("div", { class: "narrow" },
      card("This run", element("div", { class: "scroll" }, pairs(facts))),
      alerts(run),
      reading(run),
      milestones(run.milestones),
      lineage(run.lineage)),
    nonfinite(run.nonfinite),
    pipeline(run.pipeline));
}

function alerts(run) {
  const journal = run.journal;
  if (journal === null) return card("Alerts", element("div", { class: "soft" }, "No monitor wrote a journal for this run."));
  const items = journal.alerts.map((alert) =>
    element("div", { class: `alert ${["critical", "warning", "info"].includes(alert.severity) ? alert.severity : "unknown"}` },
      element("b", {}, `${alert.severity ?? ""} ${alert.rule ?? ""}`),
      element("span", { class: "soft" }, ` step ${alert.step}, rank ${alert.rank}, ${moment(alert.wall_time)}`),
      element("p", {}, alert.message ?? ""),
      alert.advice ? element("p", { class: "soft" }, alert.advice) : null));
  const total = Object.values(journal.alert_counts).reduce((sum, count) => sum + count, 0);
  const warnings = Object.entries(journal.warning_counts).map(([name, count]) => `${name} ${count}`).join(", ");
  const made = card(`Alerts (${total})`,
    journal.stop ? element("p", { class: "failed" }, journal.stop) : null,
    element("div", { class: "scroll" }, items.length ? items : element("div", { class: "soft" }, "The monitor raised none.")),
    total > items.length ? element("div", { class: "soft" }, `The newest ${items.length} are shown.`) : null,
    warnings ? element("p", {}, element("span", { class: "soft" }, "Warnings: "), warnings) : null,
    element("div", { class: "soft path" }, `Journal: ${journal.directory}`));
  made.classList.add("alerts");
  return made;
}

function lineage(found) {
  const rows = [...found.hparams, ...found.metrics].map(([name, value]) => [name, number(value)]);
  if (!rows.length) return card("Lineage", element("div", { class: "soft" }, "None is recorded for this run yet."));
  const table = pairs(rows);
  table.classList.add("lineage");
  return card("Lineage", element("div", { class: "scroll" }, table),
    found.parts.length ? element("div", { class: "soft" }, `Recorded: ${found.parts.join(", ")}`) : null);
}

function milestones(found) {
  if (!found.length) return card("Milestones", element("div", { class: "soft" }, "None is recorded."));
  const rows = found.map((one) => element("tr", {},
    element("td", { class: "key" }, `step ${one.step}`), element("td", { class: "key" }, moment(one.wall_time)),
    element("td", {}, one.tag ? element("b", {}, `${one.tag}: `) : null, one.text)));
  return card("Milestones", element("div", { class: "scroll" }, element("table", {}, element("tbody", {}, ...rows))));
}

function reading(run) {
  const found = run.reading;
  const inside = (text) => (text.startsWith(`${run.directory}/`) ? text.slice(run.directory.length + 1) : text);
  const items = [
    ...found.problems.map(inside),
    ...found.damaged.map((one) => `${inside(one.file)}: bytes ${one.start} to ${one.end} are damaged: ${one.reason}`),
    ...found.incomplete.map((one) => `${inside(one.file)}: ends inside a record, at byte ${one.offset} (it may still grow)`),
    ...found.lost,
  ];
  if (found.damaged_count > found.damaged.length) items.push(`and ${found.damaged_count - found.damaged.length} more damaged places`);
  const made = card("Damage and losses", items.length
    ? element("div", { class: "scroll" }, element("ul", {}, ...items.map((text) => element("li", {}, text))))
    : element("div", { class: "soft" }, "Everything could be read."));
  if (items.length) made.classList.add(found.damaged_count || found.problems.length ? "problem" : "notice");
  made.classList.add("reading");
  return made;
}

function nonfinite(found) {
  const title = "NaN and infinite values in histograms";
  if (!found.tags) return null;
  if (!found.affected) return card(title, element("div", { class: "soft" }, `None in the histograms of ${plural(found.tags, "tag")}.`));
  const made = card(title,
    element("div", { class: "legend" },
      `${found.affected} of ${plural(found.tags, "tag")}, the earliest first; number of values by step: `,
      element("i", { class: "nan" }, "NaN"), " and ", element("i", { class: "inf" }, "infinite"),
      found.affected > found.charts.length ? `; ${found.charts.length} are drawn` : ""),
    element("div", { class: "charts" }, ...found.charts.map(chart)));
  return made;
}

function chart(one) {
  const width = 440, height = 110, left = 46, right = 8, top = 8, bottom = 20;
  const first = Math.min(0, one.first_step), last = Math.max(one.last_step, first + 1);
  const most = Math.max(1, ...one.points.map((point) => Math.max(point[1], point[2])));
  const x = (step) => left + ((step - first) / (last - first)) * (width - left - right);
  const y = (count) => top + (1 - count / most) * (height - top - bottom);
  const stems = one.points.flatMap(([step, nan, inf]) => [["nan", nan, -1.5], ["inf", inf, 1.5]]
    .filter(([, count]) => count > 0)
    .map(([kind, count, beside]) => drawn("g", { class: kind },
      drawn("title", {}, `step ${step}: ${count} ${kind === "nan" ? "NaN" : "infinite"}`),
      drawn("line", { x1: x(step) + beside, x2: x(step) + beside, y1: y(0), y2: y(count), "stroke-width": 1.5 }),
      drawn("circle", { cx: x(step) + beside, cy: y(count), r: 2.2 }))));
  const picture = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `NaN and infinite values of ${one.tag} by step` },
    drawn("line", { class: "axis", x1: left, x2: left, y1: top, y2: y(0) }),
    drawn("line", { class: "axis", x1: left, x2: width - right, y1: y(0), y2: y(0) }),
    drawn("text", { x: left - 5, y: top + 9, "text-anchor": "end" }, short(most)),
    drawn("text", { x: left - 5, y: y(0) + 1, "text-anchor": "end" }, "0"),
    drawn("text", { x: left, y: height - 5 }, String(first)),
    drawn("text", { x: width - right, y: height - 5, "text-anchor": "end" }, `step ${one.last_step}`),
    ...stems);
  const counts = `from step ${one.first_step} on, in ${one.affected} of ${one.histograms} histograms: ` +
    `${one.nan} NaN, ${one.pos_inf} +Inf, ${one.neg_inf} -Inf`;
  return element("div", { class: "chart" }, element("b", {}, one.tag), element("div", { class: "soft" }, counts), picture);
}

function short(count) {
  for (const [unit, name] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (count >= unit) return `${Number((count / (unit === 1e4 ? 1e3 : unit)).toPrecision(3))}${name}`;
  }
  return String(count);
}

// ------------------------------------------------------------------ data pipeline

function pipeline(found) {
  if (found.error) return card("Data pipeline", element("div", {}, found.error));
  if (!found.stages.length) return card("Data pipeline", element("div", { class: "soft" }, "None is recorded for this run."));
  const made = card("Data pipeline", element("div", { class: "pipeline" }, chain(found.stages)));
  return made;
}

// So many stages, branches, operations and parameters, and so much of a text, as a person may look at.
const MOST_PARTS = 200;
const MOST_CHARACTERS = 200;

function bounded(parts, show) {
  const shown = parts.slice(0, MOST_PARTS).map(show);
  const more = parts.length - shown.length;
  return more ? [...shown, element("div", { class: "soft" }, `and ${more} more`)] : shown;
}

function shortened(text) {
  const characters = [...text];
  if (characters.length <= MOST_CHARACTERS) return text;
  return `${characters.slice(0, MOST_CHARACTERS).join("")}… (${characters.length} characters)`;
}

function chain(stages) {
  const steps = bounded(stages, (stage) => (stage.branches.length ? [branches(stage), arrow(), box(stage)] : box(stage)));
  return element("div", { class: "chain" }, ...steps.flatMap((step, index) => (index ? [arrow(), step].flat() : step)));
}

function branches(stage) {
  return element("div", { class: "branches" }, ...bounded(stage.branches, chain));
}

function arrow() {
  return drawn("svg", { class: "arrow", viewBox: "0 0 34 14", "aria-hidden": "true" }, drawn("path", { d: "M4 7H29M24 2L29 7L24 12" }));
}

function box(stage) {
  const parts = [title(stage), parameters(stage)];
  if (stage.sampler) parts.push(operation(stage.sampler, "sampled by "));
  parts.push(...bounded(stage.operations, (one, index) => operation(one, `${index + 1}. `)));
  return element("div", { class: "stage" }, ...parts);
}

function operation(one, before) {
  return element("div", { class: "inner" }, before, title(one), parameters(one));
}

function title(one) {
  return element("b", {}, shortened(one.name) || "(no name)");
}

function parameters(one) {
  return element("div", { class: "parameters" }, ...bounded(one.parameters, ([name, value]) =>
    element("span", {}, element("span", { class: "soft" }, `${name} `), shortened(value))));
}

// ------------------------------------------------------------------ theme

// TensorBoard's page is of the same address and marks its body; elsewhere the system's wish counts.
function isDark(choice) {
  if (choice !== "auto") return choice === "dark";
  try {
    if (window.parent !== window) return window.parent.document.body.classList.contains("dark-mode");
  } catch {
    // a page of another address, whose theme is not for us to see
  }
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
}

function watchTheme(apply) {
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  try {
    if (window.parent !== window) {
      new MutationObserver(apply).observe(window.parent.document.body, { attributes: true, attributeFilter: ["class"] });
    }
  } catch {
    // as above
  }
}

function remembered(name, fallback) {
  try {
    return window.localStorage.getItem(`mindspore-page-${name}`) ?? fallback;
  } catch {
    return fallback;
  }
}

function remember(name, value) {
  try {
    window.localStorage.setItem(`mindspore-page-${name}`, value);
  } catch {
    // storage may be switched off
  }
}

// ------------------------------------------------------------------ page

class Page {
  constructor() {
    this.chosen = remembered("run", null);
    this.sort = null;
    this.data = null;
    this.run = null;
    this.shown = { table: "", run: "", key: null };
    const theme = remembered("theme", "auto");
    this.theme = THEMES.includes(theme) ? theme : "auto";
    this.status = element("span", { class: "soft", role: "status" }, "reading…");
    this.source = element("span", { class: "soft path" });
    this.toggle = element("button", { class: "plain", click: () => this.turnTheme() });
    this.problem = element("div");
    this.table = element("div");
    this.details = element("div");
    document.head.append(element("style", {}, STYLE));
    document.body.append(
      element("header", {}, element("h1", {}, "MindSpore"), this.source, element("span", { class: "grow" }), this.status, this.toggle),
      this.problem, this.table, this.details);
    watchTheme(() => this.applyTheme());
    this.applyTheme();
  }

  applyTheme() {
    document.documentElement.dataset.theme = isDark(this.theme) ? "dark" : "light";
    this.toggle.textContent = `Theme: ${this.theme}`;
  }

  turnTheme() {
    this.theme = THEMES[(THEMES.indexOf(this.theme) + 1) % THEMES.length];
    remember("theme", this.theme);
    this.applyTheme();
  }

  sortBy(column, way) {
    this.sort = { column, way };
    this.drawTable();
  }

  choose(key) {
    this.chosen = key;
    remember("run", key);
    this.drawTable();
    this.load().catch((error) => this.tell([String(error)]));
  }

  async ask(path) {
    const response = await fetch(new URL(path, document.baseURI));
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error ?? `the server answers ${response.status}`);
    return answer;
  }

  async load() {
    this.data = await this.ask("runs");
    const keys = this.data.rows.map((row) => row.key);
    if (!keys.includes(this.chosen)) this.chosen = keys[0] ?? null;
    const key = this.chosen;
    const run = key === null ? null : await this.ask(`run?key=${encodeURIComponent(key)}`);
    if (key !== this.chosen) return; // another one was chosen meanwhile, and is on its way
    this.run = run;
    this.draw();
  }

  draw() {
    const { data } = this;
    this.source.textContent = data.source;
    const read = data.rows.filter((row) => row.is_read).length;
    this.status.textContent = !data.is_known ? "reading…"
      : data.is_reading ? `reading… ${read} of ${plural(data.rows.length, "run")}` : "up to date";
    this.tell([data.fault, ...data.problems]);
    this.drawTable();
    const text = JSON.stringify(this.run);
    if (text === this.shown.run) return; // nothing new: what is scrolled or marked stays so
    this.shown.run = text;
    const isSame = this.shown.key === this.chosen;
    this.shown.key = this.chosen;
    const places = [...this.details.querySelectorAll(".scroll")].map((each) => each.scrollTop);
    this.details.replaceChildren(...(this.run === null ? [] : [details(this.run)]));
    if (isSame) this.details.querySelectorAll(".scroll").forEach((each, index) => { each.scrollTop = places[index] ?? 0; });
  }

  drawTable() {
    if (this.data === null) return;
    const text = JSON.stringify([this.data, this.chosen, this.sort]);
    if (text === this.shown.table) return;
    this.shown.table = text;
    const before = this.table.querySelector(".scroll");
    const place = before === null ? [0, 0] : [before.scrollLeft, before.scrollTop];
    this.table.replaceChildren(this.data.rows.length ? comparison(this.data, this)
      : element("section", { class: "card" }, this.data.is_known ? "There is no run of MindSpore's below this logdir." : "Looking for runs…"));
    const after = this.table.querySelector(".scroll");
    if (after !== null) [after.scrollLeft, after.scrollTop] = place;
  }

  tell(lines) {
    const said = lines.filter(Boolean);
    const text = JSON.stringify(said);
    if (text === this.said) return;
    this.said = text;
    this.problem.replaceChildren(...(said.length
      ? [element("section", { class: "card problem" }, element("h3", {}, "Problems"), element("ul", {}, ...said.map((line) => element("li", {}, line))))]
      : []));
  }

  async runForever() {
    for (;;) {
      if (!document.hidden && window.innerHeight > 0) { // a frame behind another page of TensorBoard has no height
        try {
          await this.load();
        } catch (error) {
          this.status.textContent = "no answer";
          this.tell([`TensorBoard does not answer: ${error.message ?? error}`]);
        }
      }
      const isReading = this.data !== null && (this.data.is_reading || !this.data.is_known);
      await new Promise((done) => setTimeout(done, isReading ? POLL_WHILE_READING_MS : POLL_MS));
    }
  }
}

export function render() {
  document.title = "MindSpore";
  document.documentElement.lang = "en";
  new Page().runForever();
}
