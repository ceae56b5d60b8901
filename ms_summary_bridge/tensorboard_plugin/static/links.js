// Links from a run to the pages of TensorBoard that have something of it.

import { element } from "./dom.js";
import { outerDocument } from "./theme.js";

const PAGES = /** @type {Record<string, string>} */ ({
  scalars: "Time series", histograms: "Histograms", images: "Images", graphs: "Graphs", hparams: "HParams", text: "Text", mesh: "Mesh",
});

/**
 * @param {import("./types").Row} row
 * @returns {HTMLElement}
 */
export function pageLinks(row) {
  const { runs, dashboards } = row.links;
  const place = outerDocument()?.defaultView?.location ?? window.location;
  const kept = new URLSearchParams(place.search);
  /** @param {string} page */
  const address = (page) => {
    const regex = `^(${runs.map((run) => run.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})$`;
    const query = new URLSearchParams(kept);
    query.delete("runFilter");
    if (page === "scalars") {
      query.set("runFilter", regex);
      return `${place.pathname}?${query}#timeseries`;
    }
    const search = query.size ? `?${query}` : "";
    const own = page === "graphs" ? `run=${encodeURIComponent(runs[0])}` : `regexInput=${encodeURIComponent(regex)}`;
    return `${place.pathname}${search}#${page}${page === "hparams" ? "" : `&${own}`}`;
  };
  const links = runs.length ? dashboards.filter((page) => page in PAGES) : [];
  return element("nav", { class: "links", "aria-label": "Pages of TensorBoard with this run" }, ...links.map((page) =>
    element("a", { href: address(page), target: "_blank", rel: "noopener" }, PAGES[page])));
}
