// @ts-check
/** A long list that is one stop of the Tab key: the arrows walk its lines. */
import { setAttribute } from "./dom.js";

const PAGE = 10; // lines a page key walks

export class OneStop {
  /**
   * @param {HTMLElement} list
   * @param {string} line selects what has the focus of a line
   * @param {string} [beside] selects what the Tab key reaches from that line only
   */
  constructor(list, line, beside) {
    this.list = list;
    this.line = line;
    this.beside = beside;
    list.addEventListener("keydown", (event) => this.pressed(event));
    list.addEventListener("focusin", (event) => {
      const row = /** @type {Element} */ (event.target).closest("li");
      this.keep(row?.querySelector(line) ?? null);
    });
  }

  /** @returns {HTMLElement[]} */
  lines() {
    return /** @type {HTMLElement[]} */ ([...this.list.querySelectorAll(this.line)]);
  }

  /** The Tab key stops at this line, or at the first. @param {Element|null} [line] */
  keep(line) {
    const lines = this.lines();
    const stop = line ?? this.list.querySelector(`${this.line}[tabindex="0"]`) ?? lines[0];
    for (const each of lines) {
      const tabindex = each === stop ? "0" : "-1";
      setAttribute(each, "tabindex", tabindex);
      const other = this.beside && each.parentElement?.querySelector(this.beside);
      if (other) setAttribute(other, "tabindex", tabindex);
    }
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    const lines = this.lines();
    const at = lines.indexOf(/** @type {HTMLElement} */ (event.target));
    /** @type {Record<string, number>} */
    const places = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      PageDown: at + PAGE,
      PageUp: at - PAGE,
      Home: 0,
      End: lines.length - 1,
    };
    const to = places[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    lines[Math.max(0, Math.min(lines.length - 1, to))].focus();
  }
}
