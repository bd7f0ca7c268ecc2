// @ts-check
/** Rows of requests with their texts, as many as there is room for, each with its end in sight. */
import { el, reconcile, setAttribute, setText } from "../page/dom.js";
import { themeOf } from "../page/theme.js";
import { setTruth, truth } from "../page/truth.js";
import { requestColour } from "../words/colours.js";
import { nobodyAsked } from "../words/empty.js";
import { visible } from "../words/format.js";
import * as words from "../words/rooms.js";
import { streamsOf } from "./streams_model.js";

/** @import { Moment } from "../boxes/moment.js" */
/** @import { Store } from "../core/store.js" */
/** @import { Stream } from "./streams_model.js" */

const GAP = 6;

export class Streams {
  /**
   * @param {Store} store @param {number} height of a row, in pixels
   * @param {(stream: Stream) => string} note what stands beside a request's name
   * @param {boolean} asked whether the prompt is shown
   */
  constructor(store, height, note, asked) {
    this.store = store;
    this.height = height;
    this.note = note;
    this.asked = asked;
    /** For the caption: how many there are, and how many found no room. */
    this.open = truth("derived", words.OPEN_HOW);
    this.more = el("span", { class: "gb-queue-more" });
    this.list = el("div", { class: "gb-streams", role: "list" });
    this.list.style.setProperty("--row", `${height}px`);
    this.none = el("p", { class: "gb-room-none" });
    this.element = el("div", { class: "gb-room-floor" }, this.list, this.none);
    this.high = 0; // pixels
    /** @type {Moment|null} */
    this.now = null;
    this.observer = new ResizeObserver(() => {
      this.high = this.element.clientHeight;
      this.draw();
    });
    this.observer.observe(this.element);
  }

  destroy() {
    this.observer.disconnect();
  }

  /** @param {Moment} now */
  update(now) {
    this.now = now;
    this.draw();
  }

  draw() {
    if (!this.now || !this.high) return;
    const fit = Math.max(1, Math.floor((this.high + GAP) / (this.height + GAP)));
    const { open, ended, streams } = streamsOf(this.store, this.now, fit);
    setTruth(this.open, "derived", words.OPEN_HOW, words.openAndDone(open, ended));
    const more = open + ended - streams.length;
    setText(this.more, more > 0 ? words.moreOf(more) : "");
    this.none.hidden = streams.length > 0;
    setText(this.none, nobodyAsked(this.store));
    const theme = themeOf(this.element);
    reconcile(
      this.list,
      streams,
      (stream) => `${this.store.header.trace_id} ${stream.id}`,
      (stream) => this.makeRow(stream),
      (node, stream) => this.fill(node, stream, theme),
    );
  }

  /** @param {Stream} stream */
  makeRow({ id }) {
    const row = el(
      "button",
      {
        class: "gb-stream",
        type: "button",
        "data-request": id,
        onclick: () => this.store.select({ request: id }),
      },
      el("b", { text: id }),
      el("span", { class: "gb-stream-note" }),
      el(
        "span",
        { class: "gb-stream-text" },
        el("span", {}, el("span"), el("mark"), el("i", { "aria-hidden": "true" })),
      ),
    );
    if (this.asked) row.insertBefore(el("span", { class: "gb-stream-asked" }), row.lastChild);
    return el("div", { role: "listitem" }, row);
  }

  /** @param {HTMLElement} node @param {Stream} stream @param {string} theme */
  fill(node, stream, theme) {
    const row = /** @type {HTMLElement} */ (node.firstElementChild);
    const colour = requestColour(stream.id, theme);
    if (row.dataset.colour !== colour) {
      row.dataset.colour = colour;
      row.style.setProperty("--hue", colour);
    }
    setAttribute(row, "data-status", stream.status);
    setAttribute(row, "data-asked", this.asked ? "" : null);
    setAttribute(row, "aria-pressed", String(this.store.selection.request === stream.id));
    setText(row.children[1], this.note(stream));
    if (this.asked) setText(row.children[2], visible(stream.asked));
    const text = /** @type {any} */ (row.lastElementChild?.firstElementChild);
    const [sent, fresh] = text.children;
    setText(sent, visible(stream.sent) || (stream.fresh ? "" : words.NO_TEXT));
    sent.classList.toggle("is-none", !stream.sent && !stream.fresh);
    setText(fresh, visible(stream.fresh));
    setAttribute(row, "title", words.streamText(stream));
  }
}
