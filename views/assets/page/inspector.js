// @ts-check
/**
 * The inspector: what the selected box, request or block is, how it stands at the cursor, what
 * happened there, and where it lives in code. With nothing selected: the view and the document.
 */
import { INSPECTOR } from "../words/inspector.js";
import { el } from "./dom.js";
import { showBlock } from "./inspector_block.js";
import { showBox } from "./inspector_box.js";
import { showRequest } from "./inspector_request.js";
import { showView } from "./inspector_view.js";
import { Pace, READ_MS } from "./pace.js";

/** @import { Store } from "../core/store.js" */

export class Inspector {
  /**
   * @param {HTMLElement} root
   * @param {Store} store
   */
  constructor(root, store) {
    this.store = store;
    this.body = el("div", {
      class: "gb-inspector-scroll",
      tabindex: "0",
      role: "region",
      "aria-label": INSPECTOR.name,
    });
    root.append(this.body);
    this.key = "";
    this.version = "";
    /** @type {() => void} */
    this.refresh = () => {};
    this.pace = new Pace(store, () => this.refresh(), READ_MS);
  }

  update() {
    const { store } = this;
    if (!store.document) return;
    const { component, request, block } = store.selection;
    const shown = this.what(component, request, block);
    const key = JSON.stringify([shown.key, store.view, store.header?.trace_id ?? "", store.live]);
    if (key !== this.key || this.page !== store.document) {
      this.key = key;
      this.page = store.document;
      this.body.replaceChildren();
      this.body.scrollTop = 0;
      this.refresh = shown.build();
      this.version = "";
    }
    const version = `${store.version} ${store.clock.walking}`;
    if (this.version === version && !this.pace.waits) return;
    const isNew = this.version === "";
    this.version = version;
    if (isNew) this.pace.now();
    else this.pace.update();
  }

  /** @param {string|null} component @param {string|null} request @param {number|null} block */
  what(component, request, block) {
    const { body, store } = this;
    if (block !== null)
      return { key: ["block", block], build: () => showBlock(body, store, block) };
    if (request !== null)
      return { key: ["request", request], build: () => showRequest(body, store, request) };
    const item = store.document.components.find((each) => each.id === component);
    if (item) return { key: ["box", item.id], build: () => showBox(body, store, item) };
    return { key: ["view"], build: () => showView(body, store) };
  }
}
