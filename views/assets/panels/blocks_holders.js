// @ts-check
/** Who holds blocks: the requests that run, in their colours, to be chosen. */
import { queueOf } from "../core/memory_parts.js";
import { el, reconcile, setAttribute } from "../page/dom.js";
import { setTruth } from "../page/truth.js";
import { requestColour } from "../words/colours.js";
import { count, plural } from "../words/format.js";
import { shownRequest } from "./cursor.js";

/** @import { Store } from "../core/store.js" */

const SHOWN = 12;

export class Holders {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.list = el("ul", { class: "gbp-holders-list" });
    this.more = el("span", { class: "gbp-holders-more" });
    const title = el("span", { class: "gbp-holders-title", text: "running" });
    this.element = el("div", { class: "gbp-holders" }, title, this.list, this.more);
  }

  /** @param {string} theme */
  update(theme) {
    const state = this.store.state ?? {};
    const running = queueOf(state, "running");
    const shown = running.slice(0, SHOWN);
    this.element.hidden = running.length === 0;
    const chosen = shownRequest(this.store);
    reconcile(
      this.list,
      shown,
      (id) => id,
      (id) => this.item(id),
      (node, id) => {
        const [button] = node.children;
        const [swatch, , held] = button.children;
        swatch.style.background = requestColour(id, theme);
        const blocks = Object.keys(state.requests[id].block_table ?? {}).length;
        setTruth(held, "measured", "length of its block table", plural(blocks, "block"));
        setAttribute(button, "aria-pressed", String(id === chosen));
      },
    );
    const rest = running.length - shown.length;
    setTruth(
      this.more,
      "derived",
      `length of the running queue - the ${SHOWN} shown`,
      rest > 0 ? `+${count(rest)} more` : "",
    );
  }

  /** @param {string} id */
  item(id) {
    const button = el(
      "button",
      { type: "button", class: "gbp-holder", onclick: () => this.store.select({ request: id }) },
      el("i", { "aria-hidden": "true" }),
      el("b", { text: id }),
      el("span"),
    );
    return el("li", {}, button);
  }
}
