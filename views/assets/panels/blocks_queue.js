// @ts-check
/** The free queue's first blocks, in the order in which they will be given. */
import { el, reconcile, setAttribute, setText } from "../page/dom.js";
import { setTruth } from "../page/truth.js";
import { QUEUE } from "../words/blocks.js";
import { UNCOMPUTED } from "../words/events.js";
import { count, plural } from "../words/format.js";

/** @import { Store } from "../core/store.js" */
/** @import { Model } from "./blocks_model.js" */

export class FreeQueue {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.size = el("span");
    this.list = el("ol", { class: "gbp-queue" });
    this.more = el("p", { class: "gbp-more" });
    const title = el("h3", { class: "gbp-title" }, QUEUE.title, this.size);
    this.element = el("section", { class: "gbp-section" }, title, this.list, this.more);
  }

  /** @param {Model} data */
  update(data) {
    const size = plural(data.queue.length, "block");
    setTruth(this.size, "measured", QUEUE.length, size);
    reconcile(
      this.list,
      data.queue.first.map((item, place) => ({ ...item, place })),
      // A step may take all that are shown: a place's chip is filled anew rather than made.
      ({ place }) => `${place}`,
      () => this.chip(),
      (node, item) => {
        const chip = node.firstChild;
        chip.dataset.block = String(item.block);
        setText(chip, String(item.block));
        chip.classList.toggle("is-cached", item.hashed);
        chip.classList.toggle("is-next", item.place === 0);
        chip.classList.toggle("is-selected", this.store.selection?.block === item.block);
        const next = item.place === 0 ? QUEUE.next : "";
        chip.classList.toggle("is-uncomputed", item.uncomputed);
        const cached = item.hashed ? QUEUE.cached : QUEUE.empty;
        const what = item.uncomputed ? UNCOMPUTED : cached;
        setAttribute(chip, "title", `measured: block ${item.block}${next}, ${what}`);
      },
    );
    const more = data.queue.length - data.queue.first.length;
    this.more.hidden = more <= 0;
    const how = QUEUE.rest(data.queue.first.length);
    setTruth(this.more, "derived", how, `+${count(more)} more`);
  }

  chip() {
    const button = el("button", {
      type: "button",
      class: "gbp-chip",
      onclick: () => this.store.select({ block: Number(button.dataset.block) }),
    });
    return el("li", {}, button);
  }
}
