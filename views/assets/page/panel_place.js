// @ts-check
/** The place below the map: the panel of the view, or why there is none. */
import { noLog } from "../words/empty.js";
import { messageOf } from "../words/format.js";
import { el, setAttribute, setText } from "./dom.js";
import { PANEL_FILES, panelOf, staticNotice } from "./view_panel.js";

/** @import { PageDocument } from "../core/document.js" */
/** @import { Store } from "../core/store.js" */
/**
 * @typedef {Object} Panel
 * @property {() => void} update
 * @property {() => void} back draws all of it, after it was off the page
 * @property {() => void} [leave] it is taken off the page
 * @property {() => void} destroy
 *
 * @typedef {{file: string, root: HTMLElement, panel: Panel|null}} Shown
 */

export class PanelPlace {
  /**
   * @param {Store} store
   * @param {(act: () => void) => void} guarded draws, and says where that fails
   * @param {() => void} cleared what the panel before could not draw is gone with it
   */
  constructor(store, guarded, cleared) {
    this.store = store;
    this.guarded = guarded;
    this.cleared = cleared;
    this.element = el("section", { class: "gb-panel-area", id: "gb-panel", role: "tabpanel" });
    this.noLog = el("p", { class: "gb-empty", hidden: true });
    /** @type {Shown|null} */
    this.shown = null;
    /** Whether its panel drew all that it had to. */
    this.isWhole = false;
    /** The module that is to be shown; what stands there without one is of its document. */
    this.file = /** @type {string|null} */ (null);
    /** @type {Map<string, {mount(root: HTMLElement, store: Store): Panel}>} modules by file */
    this.modules = new Map();
    /** @type {Map<string, Shown>} by file, what other views show */
    this.kept = new Map();
    this.width = 0;
    // What a panel was sized for has changed: those that are not on show are made anew.
    this.resize = new ResizeObserver(([{ contentRect }]) => {
      if (contentRect.width !== this.width) this.letGo();
      this.width = contentRect.width;
    });
    this.resize.observe(this.element);
    this.page = /** @type {PageDocument|null} */ (null);
    /** @type {(() => void)|undefined} asks for the engine's own map */
    this.goHome = undefined;
  }

  destroy() {
    this.resize.disconnect();
    this.shown?.panel?.destroy();
    this.letGo();
  }

  letGo() {
    for (const { panel } of this.kept.values()) panel?.destroy();
    this.kept.clear();
  }

  /** The sentence that the panel opens with, "" where it has none. */
  get sentence() {
    return this.element.querySelector(".gbp-sentence")?.textContent ?? "";
  }

  update() {
    const { store } = this;
    setAttribute(this.element, "aria-labelledby", store.view ? `gb-tab-${store.view}` : null);
    const file = panelOf(store.document, store.currentView);
    if (file !== this.file || (!file && this.page !== store.document)) {
      this.file = file;
      this.page = store.document;
      if (file) this.show(file);
      else this.showNone();
      return;
    }
    this.draw(() => this.shown?.panel?.update());
    this.showNoLog();
  }

  /** As long as there is no engine, one sentence stands for all the panel's figures. */
  showNoLog() {
    const { header, modelStatus } = this.store;
    const none = header === null && modelStatus !== null;
    setText(this.noLog, none ? noLog(modelStatus) : "");
    this.noLog.hidden = !none;
    if (this.shown) this.shown.root.hidden = none;
  }

  /** @param {() => void} act */
  draw(act) {
    this.isWhole = false;
    this.guarded(() => {
      act();
      this.isWhole = true;
    });
  }

  /** Something else comes: the panel is kept, unless it could not draw. */
  clear() {
    const { shown } = this;
    this.shown = null;
    if (shown?.panel && this.isWhole) {
      // Of what is taken away, no browser says that the pointer has left it.
      for (const each of shown.root.querySelectorAll("canvas, .gbp-scroll, tbody"))
        each.dispatchEvent(new MouseEvent("mouseleave"));
      shown.panel.leave?.();
      this.kept.set(shown.file, shown);
    } else shown?.panel?.destroy();
    this.element.replaceChildren();
    this.cleared();
  }

  showNone() {
    this.clear();
    this.element.append(staticNotice(this.store.document, this.goHome));
  }

  /** @param {string} file */
  show(file) {
    if (this.modules.has(file)) this.mount(file);
    else void this.load(file);
  }

  /**
   * Fetch all of them: a view's first picture is to come as fast as its second.
   * @param {string} file that is to be shown
   */
  async load(file) {
    const fetched = await Promise.allSettled(PANEL_FILES.map((each) => import(each)));
    let reason = "";
    for (const [k, each] of PANEL_FILES.entries()) {
      const found = fetched[k];
      if (found.status === "fulfilled") this.modules.set(each, found.value);
      else if (each === file) reason = messageOf(found.reason);
    }
    if (file !== this.file) return;
    if (!reason) return this.mount(file);
    this.clear();
    this.element.append(
      el("div", {
        class: "gb-empty",
        text: `The panel of this view could not be loaded (${reason}).`,
      }),
    );
  }

  /** @param {string} file whose module is there */
  mount(file) {
    this.clear();
    const kept = this.kept.get(file);
    this.kept.delete(file);
    const shown = kept ?? { file, root: el("div", { class: "gb-panel" }), panel: null };
    this.shown = shown;
    // The panel's own titles are below this one; who sees it has the view's tab instead.
    const title = el("h2", { class: "gb-sr", text: this.store.currentView?.label ?? "" });
    this.element.append(title, shown.root, this.noLog);
    this.showNoLog();
    this.draw(() => {
      if (shown.panel) shown.panel.back();
      else shown.panel = this.modules.get(file)?.mount(shown.root, this.store) ?? null;
    });
  }
}
