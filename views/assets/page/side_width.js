// @ts-check
/** How much room the column beside the map has: chosen and remembered for each of its tabs. */
import { keepText, recallText } from "../core/tab_memory.js";
import { WIDTH } from "../words/side.js";
import { el, icon, setAttribute } from "./dom.js";

const KEY = "glassbox.wide.";
/** Those that are wide until somebody says otherwise. */
const WIDE = new Set(["code"]);
const ARROWS = {
  wider: "M7 3 2 8l5 5 1.4-1.4L5.8 9H14V7H5.8l2.6-2.6z",
  narrower: "M9 3l5 5-5 5-1.4-1.4L10.2 9H2V7h8.2L7.6 4.4z",
};

export class SideWidth {
  /** @param {HTMLElement} root the column, in the page's grid */
  constructor(root) {
    this.grid = root.closest(".gb-grid") ?? root;
    this.tab = "";
    /** @type {Map<string, boolean>} */
    this.chosen = new Map();
    this.button = el("button", {
      class: "gb-side-wide",
      type: "button",
      onclick: () => this.toggle(),
    });
  }

  /** Whether the tab on show has the room. */
  get isWide() {
    const kept = this.chosen.get(this.tab) ?? recallText(KEY + this.tab);
    return kept === null ? WIDE.has(this.tab) : String(kept) === "true";
  }

  /** @param {string} tab that comes into sight */
  show(tab) {
    this.tab = tab;
    const wide = this.isWide;
    setAttribute(this.grid, "data-side", wide ? "wide" : null);
    setAttribute(this.button, "aria-pressed", String(wide));
    setAttribute(this.button, "aria-label", WIDTH.wider);
    setAttribute(this.button, "title", wide ? WIDTH.narrowerTitle : WIDTH.widerTitle);
    this.button.replaceChildren(icon(wide ? ARROWS.narrower : ARROWS.wider));
  }

  toggle() {
    this.chosen.set(this.tab, !this.isWide);
    keepText(KEY + this.tab, String(this.isWide));
    this.show(this.tab);
  }
}
