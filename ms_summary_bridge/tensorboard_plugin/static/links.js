// Links from a run to the pages of TensorBoard that have something of it.

import { element } from "./dom.js";
import { outerDocument } from "./theme.js";

const PAGES = /** @type {Record<string, string>} */ ({
  scalars: "Scalars", histograms: "Histograms", graphs: "Graphs", hparams: "HParams", images: "Images", text: "Text", mesh: "Mesh",
});

/**
 * @param {import("./types").Row} row
 * @returns {HTMLElement}
 */
export function pageLinks(row) {
  const { runs, dashboards } = row.links;
  const place = outerDocument()?.defaultView?.location ?? window.location;
  /** @param {string} page */
  const address = (page) => {
    const regex = `^(${runs.map((run) => run.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})$`;
    const own = page === "graphs" ? `run=${encodeURIComponent(runs[0])}` : `regexInput=${encodeURIComponent(regex)}`;
    return `${place.pathname}${place.search}#${page}${page === "hparams" ? "" : `&${own}`}`;
  };
  const links = runs.length ? Object.keys(PAGES).filter((page) => dashboards.includes(page)) : [];
  return element("nav", { class: "links", "aria-label": "Pages of TensorBoard with this run" }, ...links.map((page) =>
    element("a", { href: address(page), target: "_blank", rel: "noopener" }, PAGES[page])));
}
