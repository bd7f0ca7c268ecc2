// @ts-check
/**
 * The code beside the map: the function of the engine that the latest event of what is selected
 * came from, with the line, and where to read on in vLLM.
 */
import { blocksOf } from "../core/records.js";
import { sitesOf, versionOf } from "../core/sites.js";
import {
  CODE,
  CODE_LINK,
  CODE_TITLE,
  COPIED,
  NO_EVENT,
  NO_SITE,
  NOTHING_HERE,
  NOTHING_LIKE_IT,
  SELECTED,
  WAITS,
  otherVersion,
} from "../words/code.js";
import { eventPhrase } from "../words/events.js";
import { messageOf } from "../words/format.js";
import { readNext, symbolUrl } from "../words/vllm_symbols.js";
import { CodeLines } from "./code_lines.js";
import { el, setAttribute, setText } from "./dom.js";

/** @import { EventRecord } from "../core/records.js" */
/** @import { Site, SiteTable } from "../core/sites.js" */
/** @import { Store } from "../core/store.js" */
/** @import { SourceFile } from "./code_lines.js" */

const SIDES = /** @type {const} */ (["reason", "event"]);
const FAR_BACK = 20_000; // records looked through for the latest event of a box

export class CodePane {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.store = store;
    /** @type {SiteTable|null} */
    this.table = null;
    /** @type {Map<string, SourceFile|null>} null: it is on its way */
    this.files = new Map();
    this.problem = "";
    this.asked = false;
    this.whole = false;
    /** Which of an event's two places is wanted, where they are two. @type {"reason"|"event"} */
    this.side = "reason";
    /** @type {EventRecord|null} */
    this.event = null;
    const button = (/** @type {string} */ text, /** @type {() => void} */ act, title = "") =>
      el("button", { class: "gb-button gb-code-act", type: "button", text, title, onclick: act });
    this.phrase = el("button", {
      class: "gb-code-phrase",
      type: "button",
      title: CODE.goTo,
      onclick: () => this.event && this.store.jump(this.store.indexOf(this.event)),
    });
    this.note = el("p", { class: "gb-note-small", role: "status" });
    this.name = el("h2", { class: "gb-code-name" });
    this.path = el("p", { class: "gb-code gb-code-path" });
    this.sides = SIDES.map((side) => button("", () => this.choose(side)));
    this.copy = button(CODE.copy, () => void this.copyCode(), CODE.copyTitle);
    this.open = button(CODE.openFile, () => this.toggleWhole());
    const acts = [...this.sides, this.copy, this.open];
    this.acts = el("div", { class: "gb-code-acts" }, ...acts);
    this.code = new CodeLines(store);
    this.next = el("p", { class: "gb-code-next" });
    this.element = el(
      "div",
      { class: "gb-code-pane" },
      this.phrase,
      this.note,
      el("div", { class: "gb-code-head" }, this.name, this.path),
      this.acts,
      this.code.element,
      this.next,
    );
    root.append(this.element);
  }

  /** It comes into sight, or leaves it. @param {boolean} shown */
  show(shown) {
    if (shown) void this.load();
  }

  async load() {
    if (this.asked || !this.store.link) return;
    this.asked = true;
    try {
      this.table = await this.store.link.request("GET", "/api/source");
      this.problem = "";
    } catch (error) {
      this.asked = false;
      this.problem = messageOf(error);
    }
    this.store.changed();
  }

  /** @param {string} path @returns {SourceFile|null} asked for where it is not there yet */
  file(path) {
    const known = this.files.get(path);
    if (known !== undefined) return known;
    this.files.set(path, null);
    void this.fetch(path);
    return null;
  }

  /** @param {string} path */
  async fetch(path) {
    try {
      const query = new URLSearchParams({ path });
      const { link } = this.store;
      this.files.set(path, await link?.request("GET", `/api/source/file?${query}`));
      this.problem = "";
    } catch (error) {
      this.files.delete(path);
      this.problem = messageOf(error);
    }
    this.store.changed();
  }

  // -- updating ----------------------------------------------------------------------------------

  update() {
    this.event = eventOf(this.store);
    const { event } = this;
    setText(this.phrase, event ? eventPhrase(event) : "");
    this.phrase.hidden = !event;
    this.tellNext(event);
    const found = event && this.table ? sitesOf(this.table, this.store, event) : null;
    const why = this.whyNothing(event, found);
    setText(this.note, why);
    this.note.hidden = !why;
    const site = why ? null : this.chosen(/** @type {any} */ (found));
    for (const part of [this.name, this.path, this.acts, this.code.element]) part.hidden = !site;
    if (!site || !event) return;
    this.tellSite(site);
    this.offerSides(/** @type {any} */ (found), site);
    const file = this.file(site.path);
    this.code.draw(file, site, sitesIn(/** @type {any} */ (found), site), event, this.whole);
  }

  /**
   * @param {EventRecord|null} event @param {{event: Site|null, reason: Site|null}|null} found
   * @returns {string} why no code is shown; "" where some is
   */
  whyNothing(event, found) {
    const { component, request, block } = this.store.selection;
    if (!event) return component || request || block !== null ? NOTHING_HERE : NO_EVENT;
    if (this.problem) return this.problem;
    if (!this.table) return WAITS;
    const logged = versionOf(this.store);
    if (logged !== this.table.version) return otherVersion(logged, this.table.version);
    return found?.event ? "" : NO_SITE;
  }

  /** @param {{event: Site, reason: Site|null}} found @returns {Site} */
  chosen({ event, reason }) {
    return this.side === "reason" && reason ? reason : event;
  }

  /** @param {Site} site */
  tellSite(site) {
    setText(this.name, site.symbol);
    const lines = site.line === site.end_line ? `${site.line}` : `${site.line}–${site.end_line}`;
    setText(this.path, `${site.path}:${lines}`);
    setText(this.open, this.whole ? CODE.functionOnly : CODE.openFile);
    setAttribute(this.open, "title", this.whole ? "" : CODE.allOf(site.path));
    setAttribute(this.code.element, "aria-label", `${CODE_TITLE}: ${site.symbol}`);
  }

  /**
   * Where the reason is made in one function and the event in another, either can be looked at.
   * @param {{event: Site, reason: Site|null}} found @param {Site} site the one on show
   */
  offerSides({ event, reason }, site) {
    const two = reason !== null && !sameFunction(event, reason);
    const texts = [CODE.decided + short(reason), CODE.logged + short(event)];
    for (const [i, button] of this.sides.entries()) {
      button.hidden = !two;
      setText(button, texts[i]);
      setAttribute(button, "aria-pressed", String(site === [reason, event][i]));
    }
  }

  /** @param {"reason"|"event"} side */
  choose(side) {
    this.side = side;
    this.store.changed();
  }

  toggleWhole() {
    this.whole = !this.whole;
    this.store.changed();
  }

  /** @param {EventRecord|null} event */
  tellNext(event) {
    const symbol = event && readNext(event);
    const key = symbol ? `${symbol.path} ${symbol.name}` : event ? "none" : "";
    if (this.next.dataset.key === key) return;
    this.next.dataset.key = key;
    if (!symbol) {
      this.next.replaceChildren(event ? NOTHING_LIKE_IT : "");
      return;
    }
    const { path, name, first, last } = symbol;
    const link = el("a", {
      class: "gb-code",
      href: symbolUrl(symbol),
      target: "_blank",
      rel: "noreferrer noopener",
      text: name,
    });
    const where = el("small", { text: `${path} ${first}–${last}` });
    this.next.replaceChildren(CODE.readNext, link, " ", where);
  }

  async copyCode() {
    try {
      await navigator.clipboard.writeText(this.code.text);
      setText(this.copy, COPIED);
    } catch {
      getSelection()?.selectAllChildren(this.code.element); // the numbers are not text of it
      setText(this.copy, SELECTED);
    }
    setTimeout(() => setText(this.copy, CODE.copy), 2000);
  }
}

/** Asks the column to show the code; it bubbles out of the inspector. */
export const ASKS_FOR_CODE = "gb-code";

/** A button that leads from what the inspector says of something to its latest event's code. */
export function codeLink() {
  const button = el("button", {
    class: "gb-link-box gb-code-link",
    type: "button",
    text: CODE_LINK,
    onclick: () =>
      button.dispatchEvent(new CustomEvent(ASKS_FOR_CODE, { bubbles: true, composed: true })),
  });
  return button;
}

/** The latest event up to the cursor about what is selected. @param {Store} store */
export function eventOf(store) {
  const { component, request, block } = store.selection;
  const live = store.document?.components.find((each) => each.id === component)?.live;
  if (block !== null) return latest(store, (event) => blocksOf(event).includes(block));
  if (request !== null) return latest(store, ({ facts }) => facts.request === request);
  if (component !== null) return live ? latest(store, isAt(store, live)) : null;
  return store.currentEvent() ?? latest(store, () => true);
}

/** What happens at a box, or travels to it. @param {Store} store @param {string} live */
function isAt(store, live) {
  const to = store.document.components.find((each) => each.live === live)?.id;
  const arriving = new Set(
    store.document.connections.filter((line) => line.to === to).map((line) => line.live),
  );
  return (/** @type {EventRecord} */ event) =>
    event.component === live || (event.connection !== null && arriving.has(event.connection));
}

/** @param {Store} store @param {(event: EventRecord) => boolean} about */
function latest(store, about) {
  for (let i = store.cursor; i >= 0 && i > store.cursor - FAR_BACK; i -= 1) {
    const record = store.records[i];
    if (record?.kind === "event" && about(record)) return record;
  }
  return null;
}

/** @param {Site} a @param {Site} b */
function sameFunction(a, b) {
  return a.path === b.path && a.symbol === b.symbol;
}

/**
 * The places of an event in one function.
 * @param {{event: Site, reason: Site|null}} found @param {Site} site
 */
function sitesIn({ event, reason }, site) {
  return [event, reason].flatMap((each) => (each && sameFunction(each, site) ? [each] : []));
}

/** @param {Site|null} site */
function short(site) {
  return site ? site.symbol.split(".").slice(-1)[0] : "";
}
