// Light or dark, as TensorBoard or as chosen.

export const THEMES = ["auto", "light", "dark"];

/**
 * TensorBoard's page is of the same address and marks its body; elsewhere the system's wish counts.
 *
 * @param {string} choice
 */
export function isDark(choice) {
  if (choice !== "auto") return choice === "dark";
  const outer = outerDocument();
  if (outer !== null) return outer.body.classList.contains("dark-mode");
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
}

/** @param {() => void} apply is called whenever the answer may be another one */
export function watchTheme(apply) {
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  const outer = outerDocument();
  if (outer !== null) new MutationObserver(apply).observe(outer.body, { attributes: true, attributeFilter: ["class"] });
}

/**
 * @returns {Document | null} of TensorBoard's page; null where there is none, or it is of another address
 */
export function outerDocument() {
  try {
    return window.parent === window ? null : window.parent.document;
  } catch {
    return null;
  }
}

/**
 * A colour of the style sheet, for what is drawn on a canvas.
 *
 * @param {string} name
 */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Takes the fonts that TensorBoard's page has, so that both look alike; without them the system's are used. */
export function adoptFonts() {
  const outer = outerDocument();
  if (outer === null) return;
  const texts = [...outer.styleSheets].flatMap((sheet) => {
    const base = sheet.href ?? outer.baseURI;
    try {
      return [...sheet.cssRules].filter((rule) => rule.cssText.startsWith("@font-face") && rule.cssText.includes("Roboto"))
        .map((rule) => rule.cssText.replaceAll(/url\("?([^")]+)"?\)/g, (_, path) => `url("${new URL(path, base)}")`));
    } catch {
      return []; // a sheet of another address
    }
  });
  const style = document.createElement("style");
  style.textContent = texts.join("\n");
  document.head.append(style);
}
