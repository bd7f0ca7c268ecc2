// @ts-check
/** The clients' side: what each asked, and what it has got of the answer so far. */
import { el } from "../page/dom.js";
import * as words from "../words/rooms.js";
import { Streams } from "./streams.js";

/** @import { Moment } from "../boxes/moment.js" */
/** @import { Store } from "../core/store.js" */

const ROW = 58;

class ClientsRoom {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.streams = new Streams(store, ROW, words.clientNote, true);
    const { open, more, element } = this.streams;
    const name = el("h3", { text: words.REQUESTS });
    root.append(el("div", { class: "gb-room-caption" }, name, open, more), element);
  }

  destroy() {
    this.streams.destroy();
  }

  /** @param {Moment} now */
  update(now) {
    this.streams.update(now);
  }
}

/** @param {HTMLElement} root @param {Store} store */
export function mount(root, store) {
  return new ClientsRoom(root, store);
}
