// @ts-check
/**
 * Which requests of the shared engine are this learner's own: a line above the map, each a button
 * that selects it.
 */
import { YOURS, yoursText } from "../words/yours.js";
import { el, reconcile, setAttribute, setText } from "./dom.js";

/** @import { Store } from "../core/store.js" */

const MOST = 8;

export class Yours {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.root = root;
    this.store = store;
    /** What the log has as the source of this learner's requests. @type {string|null} */
    this.source = null;
    this.list = el("span", { class: "gb-yours-list" });
    root.append(el("span", { text: YOURS.own }), this.list);
  }

  update() {
    const { store, source } = this;
    const shown = Boolean(source) && store.live && store.engine === "shared";
    const own = shown
      ? Object.entries(store.state.requests ?? {}).filter(([, one]) => one.source === source)
      : [];
    this.root.hidden = !own.length;
    reconcile(
      this.list,
      own.slice(-MOST).reverse(),
      ([id]) => id,
      ([id]) =>
        el("button", {
          class: "gb-button is-quiet",
          type: "button",
          title: YOURS.select,
          onclick: () => store.select({ component: null, request: id, block: null }),
        }),
      (node, [id, request]) => {
        setText(node, yoursText(id, request));
        setAttribute(node, "aria-pressed", String(store.selection.request === id));
      },
    );
  }
}
