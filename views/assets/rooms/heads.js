// @ts-check
/** Grouped KV heads: which query heads share which, and what that saves, now and at all times. */
import { headsParts } from "../panels/graph_heads.js";
import { headsOf } from "../panels/graph_model.js";
import { redrawOnChange, remake } from "../panels/parts.js";
import { el } from "../page/dom.js";
import { truth } from "../page/truth.js";
import { bytes } from "../words/format.js";
import * as words from "../words/rooms.js";

/** @import { Moment } from "../boxes/moment.js" */
/** @import { Store } from "../core/store.js" */

/** @param {Moment} now */
export function model(now) {
  const heads = headsOf(now.all("heads_grouped").at(-1), now.model);
  const reads = now.all("pages_read");
  const read = reads.reduce((sum, event) => sum + event.facts.num_bytes, 0);
  return { heads, read: reads.length ? read : null };
}

/** @typedef {ReturnType<typeof model>} Model */

class HeadsRoom {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.store = store;
    /** @type {Model|null} */
    this.data = null;
    this.picture = el("div", { class: "gb-heads" });
    this.saved = el("dl", { class: "gb-moved" });
    root.append(
      el("h3", { text: words.HEADS }),
      this.picture,
      el("h3", { text: words.SAVED }),
      this.saved,
    );
    this.redraw = redrawOnChange(root, () => this.draw(), [this.picture]);
  }

  destroy() {
    this.redraw.destroy();
  }

  /** @param {Moment} now */
  update(now) {
    this.data = model(now);
    this.draw();
  }

  draw() {
    if (!this.data) return;
    const { heads, read } = this.data;
    const colours = this.redraw.colours.get();
    const width = Math.max(240, Math.min(760, this.redraw.size(this.picture).width || 420));
    remake(this.picture, [heads, colours.theme, width], () => headsParts(heads, colours, width));
    remake(this.saved, [heads, read], () => (heads ? savedParts(heads, read) : []));
  }
}

/** @param {NonNullable<Model["heads"]>} heads @param {number|null} read bytes */
function savedParts({ group, query, kv }, read) {
  const ungrouped = read === null ? null : read * group;
  return [
    savedRow(words.READ_NOW, read, 1 / group, words.movedHow("pages_read")),
    savedRow(words.READ_UNGROUPED, ungrouped, 1, words.ungroupedHow(`${query} ÷ ${kv}`)),
  ];
}

/** @param {string} name @param {number|null} size @param {number} share @param {string} how */
function savedRow(name, size, share, how) {
  const bar = el("i", { "aria-hidden": "true" });
  bar.style.width = size === null ? "0" : `${share * 100}%`;
  const text = size === null ? words.NOT_YET_SHORT : bytes(size);
  return el("div", {}, el("dt", { text: name }), el("dd", {}, bar, truth("derived", how, text)));
}

/** @param {HTMLElement} root @param {Store} store */
export function mount(root, store) {
  return new HeadsRoom(root, store);
}
