// @ts-check
/**
 * Two runs of one workload, side by side on one clock. `mount` is what the Streamlit component
 * calls, with where the two part; the logs come from `/api/compare/trace`.
 */
import { el } from "../page/dom.js";
import { saveFile } from "../page/save_file.js";
import { Theme } from "../page/theme.js";
import { Sentence, legend, redrawOnChange } from "../panels/parts.js";
import { LEGEND, WORDS, dispatchOpening, opening, sideParts } from "../words/compare.js";
import { messageOf } from "../words/format.js";
import { sheets } from "../page/sheets.js";
import { store as pageStore } from "../workspace.js";
import { BesideStore, SharedClock } from "./clock.js";
import { Strip } from "./strip.js";

/** @import { Store } from "../core/store.js" */
/** @import { EngineLink } from "../core/stream.js" */
/** @import { Told } from "../words/compare.js" */

/**
 * @typedef {Object} Data
 * @property {string} id changes with the comparison
 * @property {string[]} labels of both runs
 * @property {Told|null} divergence
 * @property {Told|null} dispatch
 * @property {number} steps that both have
 */

const SIDES = /** @type {const} */ (["a", "b"]);

/** @type {WeakMap<object, Compare>} */
const mounted = new WeakMap();

/**
 * @param {{data: Data, parentElement: HTMLElement|ShadowRoot}} component
 * @returns {() => void}
 */
export function mount({ data, parentElement }) {
  const before = mounted.get(parentElement);
  if (before?.data.id === data.id && before.root.isConnected) return () => {};
  before?.destroy();
  const made = new Compare(parentElement, data);
  mounted.set(parentElement, made);
  return () => {
    setTimeout(() => {
      if (!made.root.isConnected) made.destroy();
    }, 250);
  };
}

class Compare {
  /** @param {HTMLElement|ShadowRoot} parent @param {Data} data */
  constructor(parent, data) {
    this.data = data;
    this.root = el("div", { class: "gb gbc", "data-theme": "light" });
    this.root.style.visibility = "hidden";
    const told = { class: "gbp gbc-body", tabindex: "-1", role: "group", "aria-label": WORDS.both };
    this.body = el("div", told, el("p", { text: WORDS.loading }));
    this.root.append(this.body);
    this.sheets = sheets(() => (this.root.style.visibility = ""), ["../compare.css"]);
    parent.append(...this.sheets, this.root);
    this.theme = new Theme(this.root, () => this.redraw?.again());
    /** @type {Strip[]} */
    this.strips = [];
    /** @type {(() => void)[]} */
    this.ends = [];
    void this.load();
  }

  async load() {
    try {
      // It is there: without it the server does not know whose runs to draw.
      const link = /** @type {EngineLink} */ (pageStore().link);
      this.texts = await Promise.all(SIDES.map((side) => link.comparedTrace(side)));
      if (this.root.isConnected) this.show(this.texts);
    } catch (error) {
      this.body.replaceChildren(
        el("p", { class: "gbc-problem", role: "alert", text: WORDS.failed(messageOf(error)) }),
      );
    }
  }

  /** @param {string[]} texts */
  show(texts) {
    const { data } = this;
    const stores = texts.map((text, i) => new BesideStore(text, data.labels[i]));
    const clock = new SharedClock(stores);
    this.clock = clock;
    const parts = data.divergence?.step ?? null;
    this.strips = stores.map((store, i) => {
      const side = SIDES[i].toUpperCase();
      const buttons = [
        button(WORDS.open(side), () => this.open(i)),
        button(WORDS.save(side), () => this.save(i)),
      ];
      return new Strip(store, this.body, side, data.labels[i], clock, parts, buttons);
    });
    this.body.replaceChildren(
      this.told(stores),
      el("div", { class: "gbc-strips" }, ...this.strips.map((strip) => strip.element)),
      legend(LEGEND),
      el("p", { class: "gbc-clock", text: WORDS.clock }),
      // Their notes beside the pointer, which the timelines had put here.
      ...this.strips.map((strip) => strip.timeline.tip.element),
    );
    this.redraw = redrawOnChange(
      this.body,
      () => this.draw(),
      [],
      this.strips.map((strip) => strip.timeline.scroll),
    );
    for (const strip of this.strips) strip.timeline.redraw = this.redraw.again;
    // The button that began it is gone, and took the focus along.
    if (document.activeElement === document.body) this.body.focus({ preventScroll: true });
    this.ends = stores.map((store) =>
      store.subscribe(() => {
        clock.follow(store);
        this.redraw?.again();
      }),
    );
    clock.seek(parts ?? 0);
    this.draw();
  }

  /** Where they part, in the words of their own logs. @param {BesideStore[]} stores */
  told(stores) {
    const { divergence, dispatch, steps } = this.data;
    const clauses = [
      el("p", { class: "gbp-sentence", text: opening(divergence, steps) }),
      ...this.sides(divergence, stores),
    ];
    if (divergence === null && dispatch !== null)
      clauses.push(
        el("p", { class: "gbp-sentence", text: dispatchOpening(dispatch) }),
        ...this.sides(dispatch, stores),
      );
    if (divergence !== null)
      clauses.push(button(WORDS.toDifference, () => this.clock?.seek(divergence.step)));
    return el("div", { class: "gbc-told" }, ...clauses);
  }

  /** @param {Told|null} told @param {BesideStore[]} stores */
  sides(told, stores) {
    if (told === null) return [];
    return stores.map((store, i) => {
      const sentence = new Sentence(store);
      const parts = sideParts(told, SIDES[i]).map((part) => sentence.part(part));
      const badge = el("b", { class: "gbc-badge", text: SIDES[i].toUpperCase() });
      const side = { class: "gbc-side", "data-side": SIDES[i].toUpperCase() };
      return el("p", side, badge, " ", ...parts);
    });
  }

  draw() {
    if (!this.redraw) return;
    const colours = this.redraw.colours.get();
    for (const strip of this.strips) {
      const { width, height } = this.redraw.size(strip.timeline.scroll);
      if (width > 0) strip.draw(colours, width, height);
    }
  }

  /** Show a run's log on the map, as a saved trace is opened. @param {number} i */
  open(i) {
    const page = pageStore();
    const text = this.texts?.[i] ?? "";
    const name = `${SIDES[i].toUpperCase()}: ${this.data.labels[i]}`;
    page.openTrace(text, name, false, new Blob([text]));
    this.mark(page);
    const entry = page.log.byStep.get(this.clock?.step ?? 0);
    if (entry) page.seek(entry.last);
    document.querySelector(".st-key-workspace")?.scrollIntoView({ block: "start" });
  }

  /** The first difference, as a bookmark of the log that is on the map. @param {Store} page */
  mark(page) {
    const entry = page.log.byStep.get(this.data.divergence?.step ?? -1);
    if (!entry) return;
    page.seek(entry.last);
    page.bookmarks.add(WORDS.parts);
  }

  /** @param {number} i */
  save(i) {
    const blob = new Blob([this.texts?.[i] ?? ""], { type: "application/jsonl" });
    saveFile(blob, `glassbox-run-${SIDES[i]}.jsonl`);
  }

  destroy() {
    for (const end of this.ends) end();
    for (const strip of this.strips) strip.destroy();
    this.redraw?.destroy();
    this.theme.destroy();
    for (const sheet of this.sheets) sheet.remove();
    this.root.remove();
  }
}

/** @param {string} text @param {() => void} act */
function button(text, act) {
  return el("button", { class: "gb-button", type: "button", text, onclick: act });
}
