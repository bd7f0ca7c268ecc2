// @ts-check
/**
 * What a lesson in the sidebar has the page show: each step once, when it comes, and then whatever
 * its reader clicks. Links of its text are caught here: `#gb-box-scheduler`, `#gb-request-r0`,
 * `#gb-block-3`, `#gb-moment-TRACE-57`, `#gb-claim-6`, `#gb-setting-max_num_seqs`.
 *
 * @typedef {{turn: number, view: string|null, component: string|null, request: string|null,
 *   block: number|null, trace_id: string|null, seq: number|null, claim: number|null,
 *   marks: boolean, picks: boolean}} LessonShown
 */

import { GUIDE } from "../words/guide.js";

/** @import { Store } from "../core/store.js" */

const SIDEBAR = "[data-testid=stSidebarContent]";
const PHONE = 640; // on a narrower page the lesson stands above what is to be seen
const USES = ["pointerdown", "keydown"];
const DRAWN_MS = 300; // by then Streamlit has drawn a step, and taken away the button pressed

const LINK = /^#gb-(box|request|block|moment|claim|setting)-(.+)$/;
const SEARCH = ".st-key-gb-search input";
const DRAWN_BY_MS = 30_000; // Streamlit draws what was asked for by then, or not at all

export class LessonGuide {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.applied = "null";
    /** Whether the step asks for a box, which may be clicked on the map. */
    this.picks = false;
    /** @type {((box: string) => void)|undefined} */
    this.tellPicked = undefined;
    /** The log of which a moment is asked for. @type {string|null} */
    this.marks = null;
    /** @type {((moment: {trace_id: string, seq: number}) => void)|undefined} */
    this.tellMarked = undefined;
    /** @type {((claim: number) => void)|undefined} */
    this.showClaim = undefined;
    /** @type {(() => void)|undefined} */
    this.showLit = undefined;
    /** @type {{trace_id: string, seq: number}|null} a moment that is not in the log yet */
    this.awaited = null;
    this.onClick = (/** @type {MouseEvent} */ event) => this.clicked(event);
    /** Whether the reader's last key or click was in the sidebar. */
    this.isReading = false;
    this.onUse = (/** @type {Event} */ event) => {
      const { target } = event;
      this.isReading = target instanceof Element && target.closest(SIDEBAR) !== null;
    };
  }

  /** Catch the text's links from now on; returns what ends that. @returns {() => void} */
  listen() {
    document.addEventListener("click", this.onClick, true);
    for (const use of USES) document.addEventListener(use, this.onUse, true);
    const unsubscribe = this.store.subscribe(() => this.reach());
    return () => {
      document.removeEventListener("click", this.onClick, true);
      for (const use of USES) document.removeEventListener(use, this.onUse, true);
      unsubscribe();
    };
  }

  /** @param {LessonShown|null} lesson */
  apply(lesson) {
    const text = JSON.stringify(lesson);
    if (text === this.applied) return;
    this.applied = text;
    if (this.isReading) setTimeout(() => this.keepFocus(), DRAWN_MS);
    this.awaited = null;
    this.picks = lesson?.picks ?? false;
    this.marks = lesson?.marks ? lesson.trace_id : null;
    if (!lesson) return;
    document.querySelector(SIDEBAR)?.scrollTo({ top: 0 });
    const { store } = this;
    if (lesson.view) store.setView(lesson.view);
    store.openBox(null);
    const { component, request, block } = lesson;
    store.select({ component, request, block }, lesson.trace_id);
    if (lesson.claim) this.showClaim?.(lesson.claim);
    this.bringIntoSight();
    if (lesson.trace_id === null || lesson.seq === null) return;
    this.showOwnEngine();
    this.awaited = { trace_id: lesson.trace_id, seq: lesson.seq };
    this.reach();
  }

  /** A button that is gone takes the focus with it: the text that came has it then. */
  keepFocus() {
    const active = document.activeElement;
    if (active && active !== document.body) return;
    const side = document.querySelector(`${SIDEBAR}, .st-key-gb-lessons button`);
    if (!(side instanceof HTMLElement)) return;
    if (side.matches(SIDEBAR)) side.tabIndex = -1;
    side.focus({ preventScroll: true });
  }

  /** A box was chosen by hand: it is an answer where one is asked for. */
  picked() {
    const { component } = this.store.selection;
    if (this.picks && component) this.tellPicked?.(component);
  }

  /** The moment at the cursor is what a question asks for. */
  mark() {
    const { header, cursor } = this.store;
    if (!header || this.marks === null) return;
    if (header.trace_id !== this.marks) {
      this.store.tell("info", GUIDE.otherLog);
      return;
    }
    this.tellMarked?.({ trace_id: header.trace_id, seq: header.base_seq + cursor });
  }

  showOwnEngine() {
    this.store.link?.choose("own");
    if (!this.store.live) this.store.backToLive();
  }

  /** Go to the awaited moment once it is there. */
  reach() {
    const { store, awaited } = this;
    if (!awaited || store.header?.trace_id !== awaited.trace_id) return;
    const index = awaited.seq - store.header.base_seq;
    if (index > store.head) return;
    this.awaited = null;
    // A page that follows its engine walks there by itself, and shows how things went.
    if (index < store.head || !store.following) store.seek(index);
  }

  // -- links ---------------------------------------------------------------------------------

  /** @param {MouseEvent} event */
  clicked(event) {
    const origin = event.composedPath()[0];
    if (!(origin instanceof Element)) return;
    if (origin.closest(".st-key-gb-lessons button")) this.openAgain(event);
    if (origin.closest(".st-key-gb-lesson-mark button")) this.mark();
    const link = origin.closest("a[href^='#gb-']");
    const found = LINK.exec(link?.getAttribute("href") ?? "");
    if (!found) return;
    event.preventDefault();
    this.show(found[1], decodeURIComponent(found[2]));
    if (found[1] !== "setting") this.bringIntoSight();
  }

  /**
   * Streamlit alone knows whether its sidebar was pushed aside; our button brings it back then.
   * @param {MouseEvent} event
   */
  openAgain(event) {
    const open = document.querySelector("[data-testid=stExpandSidebarButton]");
    if (!(open instanceof HTMLElement)) return;
    if (!document.querySelector(".st-key-gb-lesson-top")) return;
    event.preventDefault();
    event.stopPropagation();
    open.click();
  }

  /** Where the page is scrolled below the lesson, it is scrolled to what is lit. */
  bringIntoSight() {
    if (innerWidth <= PHONE) setTimeout(() => this.showLit?.(), DRAWN_MS);
  }

  /** @param {string} kind @param {string} name */
  show(kind, name) {
    const { store } = this;
    if (kind === "box") this.showBox(name);
    else if (kind === "request") store.select({ request: name });
    else if (kind === "block") store.select({ block: Number(name) });
    else if (kind === "claim") this.showClaim?.(Number(name));
    else if (kind === "setting") void this.showSetting(name);
    else this.showMoment(name);
  }

  /** @param {string} name */
  showBox(name) {
    const isThere = this.store.document?.components.some((box) => box.id === name);
    if (isThere) this.store.select({ component: name });
    else this.store.tell("info", GUIDE.noBox);
  }

  /** Open the engine's menu at a setting's field. @param {string} name */
  async showSetting(name) {
    const field = `[class*="st-key-gb-settings-${CSS.escape(name)}-"] input`;
    await pause(); // the click that is under way would close the menu again
    if (!document.querySelector(field)) press(".st-key-gb-engine-menu button");
    const input = await drawn(field); // its place is drawn before it is
    if (!(input instanceof HTMLElement)) {
      this.store.tell("info", GUIDE.noMenu);
      return;
    }
    input.scrollIntoView({ block: "center" });
    input.focus({ preventScroll: true });
  }

  /** Bring the keyboard to the search of the lessons' list, which is opened for it. */
  async lookUp() {
    if (document.querySelector(".st-key-gb-lesson-nav")) {
      this.store.tell("info", GUIDE.leaveFirst);
      return;
    }
    const isAside = document.querySelector("[data-testid=stExpandSidebarButton]") !== null;
    if (isAside || !document.querySelector(SEARCH)) press(".st-key-gb-lessons button");
    const before = document.activeElement;
    const field = await drawn(SEARCH);
    const hasMovedOn = ![before, document.body].includes(document.activeElement);
    if (hasMovedOn || !(field instanceof HTMLInputElement)) return;
    field.focus();
    field.select();
  }

  /** @param {string} name the log's id, a hyphen, the record's number */
  showMoment(name) {
    const { store } = this;
    const at = name.lastIndexOf("-");
    if (store.header?.trace_id !== name.slice(0, at)) {
      store.tell("info", GUIDE.endedLog);
      return;
    }
    const index = Number(name.slice(at + 1)) - store.header.base_seq;
    store.jump(index);
    const record = store.records[index];
    if (record?.kind === "event") store.select({ component: record.component });
  }
}

/** @param {string} selector of a button */
function press(selector) {
  const button = document.querySelector(selector);
  if (button instanceof HTMLElement) button.click();
}

/** @param {number} [ms] @returns {Promise<void>} */
function pause(ms = 0) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** What Streamlit is about to draw, once it is there. @param {string} selector */
async function drawn(selector) {
  for (const began = Date.now(); Date.now() - began < DRAWN_BY_MS; ) {
    const found = document.querySelector(selector);
    if (found) return found;
    await pause(50);
  }
  return null;
}
