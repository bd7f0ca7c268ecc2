// @ts-check
/** The bookmarks of the log: a button with their number, and the list behind it. */
import { BOOKMARKS, bookmarkName } from "../words/moments.js";
import { el, icon, reconcile, setAttribute, setText } from "./dom.js";
import { Popover } from "./popover.js";

/** @import { Bookmark } from "../core/bookmarks.js" */
/** @import { Store } from "../core/store.js" */

const FLAG = "M3 1.5h1.6V3H13l-2.4 3L13 9H4.6v5.5H3z";
const CLOSE = "M4 2.6 8 6.6l4-4L13.4 4l-4 4 4 4-1.4 1.4-4-4-4 4L2.6 12l4-4-4-4z";

export class BookmarkMenu {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.number = el("span");
    this.button = el(
      "button",
      {
        class: "gb-button is-quiet gb-bookmark",
        type: "button",
        title: BOOKMARKS.title,
        "aria-label": BOOKMARKS.name,
        "data-act": "bookmarks",
      },
      icon(FLAG),
      this.number,
    );
    this.toggleButton = el("button", {
      class: "gb-button",
      type: "button",
      onclick: () => this.toggle(),
    });
    this.list = el("ul", { class: "gb-bookmarks" });
    this.none = el("p", { class: "gb-note-small", text: BOOKMARKS.none });
    const panel = el(
      "div",
      { class: "gb-popover", role: "dialog", "aria-label": BOOKMARKS.name },
      el("h3", { text: BOOKMARKS.name }),
      this.toggleButton,
      this.none,
      this.list,
    );
    this.element = el("div", { class: "gb-bookmark-corner" }, this.button, panel);
    this.popover = new Popover(this.element, this.button, panel, () => store.changed());
  }

  destroy() {
    this.popover.destroy();
  }

  /** Set a bookmark at the cursor, or take it away. */
  toggle() {
    const { store } = this;
    const { bookmarks } = store;
    if (!store.header) return;
    if (bookmarks.at()) bookmarks.remove(bookmarks.here);
    else if (!bookmarks.add(bookmarkName(this.where()))) store.tell("info", BOOKMARKS.full);
  }

  where() {
    const at = this.store.phaseAt(this.store.cursor);
    return at && { step: at.entry.step, phase: at.phase };
  }

  update() {
    const { store } = this;
    const { list } = store.bookmarks;
    const marked = store.bookmarks.at() !== undefined;
    setText(this.number, list.length ? String(list.length) : "");
    this.button.classList.toggle("is-on", marked);
    setAttribute(this.button, "disabled", store.header ? null : "");
    if (!this.popover.isOpen) return;
    setText(this.toggleButton, marked ? BOOKMARKS.drop : BOOKMARKS.add);
    this.none.hidden = list.length > 0;
    reconcile(
      this.list,
      list,
      (each) => `${store.header.trace_id} ${each.seq}`,
      (each) => this.item(each),
      (node, each) => this.updateItem(node, each),
    );
  }

  /** @param {Bookmark} bookmark */
  item({ seq, name }) {
    const { store } = this;
    const go = el(
      "button",
      {
        class: "gb-button is-quiet",
        type: "button",
        onclick: () => store.jump(seq - store.header.base_seq),
      },
      BOOKMARKS.go,
    );
    const field = /** @type {HTMLInputElement} */ (
      el("input", {
        type: "text",
        value: name,
        maxlength: 120,
        "aria-label": BOOKMARKS.field,
        onchange: () => store.bookmarks.rename(seq, field.value),
        onkeydown: (/** @type {KeyboardEvent} */ event) => {
          if (event.key === "Enter") field.blur();
        },
      })
    );
    const drop = el(
      "button",
      {
        class: "gb-button is-quiet",
        type: "button",
        title: BOOKMARKS.remove(name),
        "aria-label": BOOKMARKS.remove(name),
        onclick: () => store.bookmarks.remove(seq),
      },
      icon(CLOSE),
    );
    return el("li", {}, go, field, drop);
  }

  /** @param {HTMLElement} node @param {Bookmark} bookmark */
  updateItem(node, { seq, name }) {
    const { store } = this;
    const go = /** @type {HTMLButtonElement} */ (node.firstElementChild);
    const gone = seq < store.header.base_seq - 1;
    setAttribute(go, "disabled", gone ? "" : null);
    setAttribute(go, "aria-current", store.bookmarks.here === seq ? "true" : null);
    const title = gone ? BOOKMARKS.gone : BOOKMARKS.to(name);
    if (go.title !== title) go.title = title;
    const field = /** @type {HTMLInputElement} */ (node.children[1]);
    const held = /** @type {ShadowRoot} */ (field.getRootNode()).activeElement === field;
    if (!held && field.value !== name) field.value = name;
  }
}
