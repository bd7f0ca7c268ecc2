// @ts-check
/**
 * Light or dark: what the page behind the workspace is.
 */

const THEME_EVERY = 1000;

/** The element that has the theme of what a node is in. @param {Element} node @returns {Element} */
export function themedOf(node) {
  const host = node.getRootNode();
  const outer = host instanceof ShadowRoot ? host.host : null;
  return node.closest("[data-theme]") ?? outer?.closest("[data-theme]") ?? document.documentElement;
}

/** @param {Element} node @returns {"light"|"dark"} */
export function themeOf(node) {
  return themedOf(node).getAttribute("data-theme") === "dark" ? "dark" : "light";
}

/** The theme is what Streamlit's background says: it has no flag, and it can change at any time. */
export class Theme {
  /** @param {HTMLElement} root @param {() => void} onChange */
  constructor(root, onChange) {
    this.root = root;
    this.onChange = onChange;
    this.media = matchMedia("(prefers-color-scheme: dark)");
    this.check = () => this.apply();
    this.media.addEventListener("change", this.check);
    this.observer = new MutationObserver(this.check);
    const app = document.querySelector(".stApp");
    for (const node of [document.documentElement, document.body, app]) {
      if (node)
        this.observer.observe(node, {
          attributes: true,
          attributeFilter: ["class", "style", "data-theme"],
        });
    }
    this.observer.observe(document.head, { childList: true });
    // Streamlit writes rules without touching the tree, which no observer sees.
    this.timer = setInterval(this.check, THEME_EVERY);
    this.apply();
  }

  destroy() {
    this.observer.disconnect();
    this.media.removeEventListener("change", this.check);
    clearInterval(this.timer);
  }

  apply() {
    const theme = isDark(backgroundBehind(this.root)) ? "dark" : "light";
    if (this.root.dataset.theme === theme) return;
    this.root.dataset.theme = theme;
    // Popovers are outside of Streamlit's app element, the only one whose colour scheme it sets.
    document.documentElement.style.colorScheme = theme;
    this.onChange();
  }
}

/** @param {Element} node @returns {string} the first background that is not transparent */
function backgroundBehind(node) {
  const host = node.getRootNode();
  /** @type {Element|null} */
  let place = host instanceof ShadowRoot ? host.host : node.parentElement;
  while (place) {
    const colour = getComputedStyle(place).backgroundColor;
    if (!/^(transparent|rgba\(.*,\s*0\))$/.test(colour)) return colour;
    const root = place.getRootNode();
    place = place.parentElement ?? (root instanceof ShadowRoot ? root.host : null);
  }
  return "rgb(255, 255, 255)";
}

/** @param {string} colour */
function isDark(colour) {
  const [r, g, b] = (colour.match(/[\d.]+/g) ?? ["255", "255", "255"]).map(Number);
  const scale = colour.startsWith("color(") ? 255 : 1;
  return (0.299 * r + 0.587 * g + 0.114 * b) * scale < 128;
}
