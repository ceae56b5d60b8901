// The page "MindSpore" in TensorBoard: the module that TensorBoard loads into a frame of its own page.
//
// Modules of its own and uPlot beside them, without a build step and without anything from elsewhere.

// All that page.js leads to, so that none is waited for by another.
const MODULES = [
  "changes", "columns", "curves", "dom", "format", "heatmap", "links", "nonfinite", "overlay", "page", "pipeline", "plot", "profiles", "query",
  "run_cards", "run_page", "save", "server", "table", "table_picture", "theme", "toolbar", "vendor/uplot", "view",
];

/**
 * @param {string} path
 * @returns {Promise<void>} kept once it is there, or cannot be had
 */
function styled(path) {
  return new Promise((done) => {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = path;
    link.onload = link.onerror = () => done();
    document.head.append(link);
  });
}

export async function render() {
  document.title = "MindSpore";
  document.documentElement.lang = "en";
  // The runs are asked for while the modules are on their way.
  const first = fetch(new URL("runs", document.baseURI)).catch(() => null);
  for (const name of MODULES) {
    const link = document.createElement("link");
    link.rel = "modulepreload";
    link.href = `${name}.js`;
    document.head.append(link);
  }
  const [{ Page }] = await Promise.all([import("./page.js"), styled("vendor/uplot.css"), styled("style.css")]);
  new Page(first).runForever();
}
