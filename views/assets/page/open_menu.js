// @ts-check
/** Open: a file from this machine, or a saved trace of the server's folder. */
import { messageOf } from "../words/format.js";
import { OPEN, traceAbout } from "../words/open.js";
import { el, icon, reconcile, setText } from "./dom.js";
import { Popover } from "./popover.js";

/** @import { Store } from "../core/store.js" */
/** @import { EngineLink, SavedTrace } from "../core/stream.js" */

const ICON = "M2 3h4.5l1.5 2H14v8H2z";
const SEARCHED = 8; // a longer list can be searched

export class OpenMenu {
  /** @param {Store} store @param {() => void} choose asks for a file of this machine */
  constructor(store, choose) {
    this.store = store;
    /** @type {SavedTrace[]} */
    this.traces = [];
    this.leftOut = 0;
    this.button = el(
      "button",
      { class: "gb-button is-quiet", type: "button", title: OPEN.title, "data-act": "open" },
      icon(ICON),
      el("span", { text: OPEN.name }),
    );
    this.file = el(
      "button",
      { class: "gb-choice", type: "button", "data-open": "file", onclick: () => this.choose() },
      el("b", { text: OPEN.file }),
      el("span", { text: OPEN.fileAbout }),
    );
    this.act = choose;
    this.search = /** @type {HTMLInputElement} */ (
      el("input", {
        type: "search",
        class: "gb-claims-search",
        placeholder: OPEN.search,
        "aria-label": OPEN.search,
        oninput: () => this.draw(),
      })
    );
    this.list = el("ul", { class: "gb-saved", "aria-label": OPEN.folder });
    this.note = el("p", { class: "gb-note-small", role: "status" });
    const panel = el(
      "div",
      { class: "gb-popover gb-save gb-open", role: "dialog", "aria-label": OPEN.dialog },
      this.file,
      el("h2", { text: OPEN.folder }),
      this.search,
      this.list,
      this.note,
    );
    this.element = el("div", { class: "gb-tool-corner" }, this.button, panel);
    this.popover = new Popover(this.element, this.button, panel, (open) => {
      if (!open) return;
      this.file.focus();
      void this.ask();
    });
  }

  destroy() {
    this.popover.destroy();
  }

  choose() {
    this.close();
    this.act();
  }

  close() {
    this.popover.open(false);
    this.button.focus();
  }

  async ask() {
    this.search.value = "";
    if (!this.traces.length) this.say(OPEN.asking);
    try {
      const link = /** @type {EngineLink|null} */ (this.store.link);
      if (!link?.key) throw new Error(OPEN.notConnected);
      const { offered, traces, left_out: leftOut } = await link.savedTraces();
      this.traces = traces;
      this.leftOut = leftOut;
      this.draw();
      if (!traces.length) this.say(offered ? OPEN.empty : OPEN.notOffered);
    } catch (error) {
      this.traces = [];
      this.draw();
      this.say(OPEN.failed(messageOf(error)));
    }
  }

  /** @param {string} text */
  say(text) {
    setText(this.note, text);
    this.note.hidden = text === "";
  }

  draw() {
    const { traces, search } = this;
    const words = search.value.trim().toLowerCase().split(/\s+/);
    const shown = traces.filter(({ path, model }) => {
      const text = `${path} ${model ?? ""}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    search.hidden = traces.length < SEARCHED;
    this.list.hidden = shown.length === 0;
    const none = traces.length && !shown.length ? OPEN.noneFound : "";
    this.say(none || (this.leftOut ? OPEN.leftOut(this.leftOut) : ""));
    reconcile(
      this.list,
      shown,
      (trace) => JSON.stringify(trace),
      (trace) => this.item(trace),
      () => {},
    );
  }

  /** @param {SavedTrace} trace */
  item(trace) {
    const about = el("small", { text: traceAbout(trace) });
    const name = el("bdi", { text: trace.path });
    if (trace.problem) return el("li", {}, el("span", { class: "gb-choice" }, name, about));
    // A link, so that it can be copied and opened in another tab; the address does what it says.
    const href = `#${new URLSearchParams({ saved: trace.path })}`;
    const open = el(
      "a",
      { class: "gb-choice", href, title: trace.path, onclick: () => this.close() },
      name,
      about,
    );
    const copy = el("button", {
      class: "gb-button is-quiet",
      type: "button",
      title: OPEN.copy(trace.path),
      "aria-label": OPEN.copy(trace.path),
      text: OPEN.link,
      onclick: () => void this.copy(href),
    });
    return el("li", {}, open, copy);
  }

  /** @param {string} href */
  async copy(href) {
    const { origin, pathname } = location;
    const link = `${origin}${pathname}${href}`;
    try {
      await navigator.clipboard.writeText(link);
      this.say(OPEN.copied);
    } catch {
      prompt(OPEN.byHand, link); // an address that is not this machine's and not https
    }
  }
}
