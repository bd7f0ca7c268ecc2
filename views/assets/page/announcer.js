// @ts-check
/**
 * What those hear who do not see the page: where the cursor has come to rest, and what happened
 * there. While the log plays or the engine runs it is silent, and speaks once where that ends.
 */
import { restText } from "../words/hints.js";
import { el, setText } from "./dom.js";

/** @import { Store } from "../core/store.js" */

const REST_MS = 700; // who steps quickly hears of the last step alone

export class Announcer {
  /** @param {Store} store @param {() => string} sentence of the view, about the step on show */
  constructor(store, sentence) {
    this.store = store;
    this.sentence = sentence;
    this.element = el("p", { class: "gb-sr", role: "status", "data-says": "moment" });
    this.place = "";
    this.timer = 0;
  }

  destroy() {
    clearTimeout(this.timer);
  }

  update() {
    const { store } = this;
    const { moves } = store;
    const place = `${store.header?.trace_id} ${store.cursor} ${store.view} ${moves}`;
    if (place === this.place) return;
    const first = this.place === "";
    this.place = place;
    clearTimeout(this.timer);
    if (!first && !moves) this.timer = window.setTimeout(() => this.tell(), REST_MS);
  }

  tell() {
    const { store } = this;
    const record = store.records[store.cursor];
    setText(this.element, restText(record, this.sentence()));
  }
}
