// @ts-check
/**
 * The log beside the map: what vLLM's console would print of this engine. A line leads to its
 * moment, and shows its box.
 */
import { consoleLines, linesUpTo } from "../core/console_index.js";
import { NO_LINES, WHOSE } from "../words/console.js";
import { noLog } from "../words/empty.js";
import { count } from "../words/format.js";
import { el, reconcile, setAttribute, setText } from "./dom.js";
import { OneStop } from "./one_stop.js";
import { truth } from "./truth.js";

/** @import { Entry } from "../core/console_index.js" */
/** @import { Store } from "../core/store.js" */

const MOST_LINES = 300; // drawn at once
const AHEAD = 100; // of them later than the cursor
const NEAR_END = 24; // pixels

export class Console {
  /**
   * @param {HTMLElement} root
   * @param {Store} store
   */
  constructor(root, store) {
    this.store = store;
    this.drawn = "";
    this.only = /** @type {HTMLInputElement} */ (
      el("input", { type: "checkbox", onchange: () => this.store.changed() })
    );
    this.more = el("p", { class: "gb-note-small" });
    this.none = el("p", { class: "gb-note-small" });
    this.list = el("ol", { class: "gb-console", "aria-label": "Lines" });
    this.stop = new OneStop(this.list, ".gb-console-line");
    this.list.addEventListener("pointerover", (event) => this.pointAt(event.target));
    this.list.addEventListener("pointerleave", () => this.store.point(null));
    this.list.addEventListener("focusin", (event) => this.pointAt(event.target));
    this.list.addEventListener("focusout", () => this.store.point(null));
    this.scroller = el(
      "div",
      { class: "gb-inspector-scroll", role: "region", "aria-label": "Log" },
      el("p", {
        class: "gb-note-small",
        text:
          "What vLLM 0.26.0's console would print of this engine. It prints the lines marked " +
          "log-requests with --enable-log-requests, and those marked ours never.",
      }),
      el("label", { class: "gb-console-only" }, this.only, "only what it prints by default"),
      this.more,
      this.none,
      this.list,
    );
    root.append(this.scroller);
  }

  /** It comes into sight. */
  open() {
    this.drawn = "";
  }

  update() {
    const { store } = this;
    const all = consoleLines(store);
    const entries = this.only.checked ? all.filter((entry) => entry.whose === "vllm") : all;
    const passed = linesUpTo(entries, store.cursor);
    setText(this.none, entries.length ? "" : store.header ? NO_LINES : noLog(store.modelStatus));
    const key = [store.header?.trace_id, entries.length, entries[0]?.key, passed].join(" ");
    if (key === this.drawn) return;
    const opened = this.drawn === "";
    this.drawn = key;
    const end = Math.min(entries.length, Math.max(MOST_LINES, passed + AHEAD));
    const first = Math.max(0, end - MOST_LINES);
    const follows = store.following && (opened || this.isAtEnd());
    this.tellHidden(first, entries.length - end);
    this.draw(entries.slice(first, end), entries[passed - 1]?.key ?? "", passed - first);
    if (follows) this.scroller.scrollTop = this.scroller.scrollHeight;
    else if (!store.following) this.bringIntoSight(this.list.querySelector("[aria-current]"));
  }

  /** Whoever has scrolled back is not to be carried along. */
  isAtEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight < NEAR_END;
  }

  /** Within the lines: the page itself stays where it is. @param {Element|null} line */
  bringIntoSight(line) {
    if (!line) return;
    const [inner, outer] = [line, this.scroller].map((node) => node.getBoundingClientRect());
    if (inner.top < outer.top) this.scroller.scrollTop -= outer.top - inner.top;
    else if (inner.bottom > outer.bottom) this.scroller.scrollTop += inner.bottom - outer.bottom;
  }

  /** @param {number} before @param {number} after */
  tellHidden(before, after) {
    const parts = [before && `${count(before)} earlier`, after && `${count(after)} later`];
    const text = parts.filter(Boolean).join(" and ");
    setText(this.more, text && `${text} lines are not drawn here.`);
  }

  /** @param {Entry[]} entries @param {string} current @param {number} passed */
  draw(entries, current, passed) {
    const trace = this.store.header?.trace_id;
    const reached = new Set(entries.slice(0, Math.max(0, passed)));
    reconcile(
      this.list,
      entries,
      (entry) => `${trace} ${entry.key}`,
      (entry) => this.line(entry),
      (node, entry) => {
        const button = node.firstElementChild;
        node.classList.toggle("is-ahead", !reached.has(entry));
        setAttribute(button, "aria-current", entry.key === current ? "true" : null);
      },
    );
    const { list } = this;
    this.stop.keep(list.querySelector(":focus") ?? list.querySelector("[aria-current]"));
  }

  /** @param {Entry} entry */
  line(entry) {
    const { label, title } = WHOSE[entry.whose];
    return el(
      "li",
      { "data-whose": entry.whose, "data-level": entry.level },
      el(
        "button",
        {
          type: "button",
          class: "gb-console-line",
          "data-component": entry.component,
          onclick: () => this.goTo(entry),
        },
        el(
          "small",
          {},
          `${entry.level} ${clockTime(this.store.header.started_at, entry.t_us)}`,
          label ? el("em", { text: label, title }) : null,
        ),
        truth(entry.truth, entry.how, entry.text),
      ),
    );
  }

  /** @param {Entry} entry */
  goTo(entry) {
    this.store.jump(entry.i);
    this.onPick(entry.component);
  }

  /** @type {(component: string) => void} a line was chosen, which is about this box */
  onPick = () => {};

  /** @param {EventTarget|null} target */
  pointAt(target) {
    const button = target instanceof Element ? target.closest(".gb-console-line") : null;
    this.store.point(button?.getAttribute("data-component") ?? null);
  }
}

/** As vLLM's console has it, `11-29 23:10:05`. @param {number} startedAt @param {number} us */
function clockTime(startedAt, us) {
  const at = new Date(startedAt * 1000 + us / 1000);
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  const day = `${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}
