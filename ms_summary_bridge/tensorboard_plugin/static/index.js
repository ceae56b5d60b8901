// The page "MindSpore" in TensorBoard: the module that TensorBoard loads into a frame of its own page.
//
// Modules of its own and uPlot beside them, without a build step and without anything from elsewhere.

import { element } from "./dom.js";
import { Page } from "./page.js";

/** @param {string} path */
function styled(path) {
  return new Promise((done) => {
    document.head.append(element("link", { rel: "stylesheet", href: path, load: () => done(true), error: () => done(false) }));
  });
}

export async function render() {
  document.title = "MindSpore";
  document.documentElement.lang = "en";
  await Promise.all([styled("vendor/uplot.css"), styled("style.css")]);
  new Page().runForever();
}
