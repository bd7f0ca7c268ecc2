// @ts-check
/** The place below the map: the panel of the view, or why there is none. */
import { noLog } from "../words/empty.js";
import { messageOf } from "../words/format.js";
import { el, setAttribute, setText } from "./dom.js";
import { PANEL_FILES, panelOf, staticNotice } from "./view_panel.js";

/** @import { PageDocument } from "../core/document.js" */
/** @import { Store } from "../core/store.js" */

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
    /** @type {HTMLElement|null} */
    this.root = null;
    /** @type {any} */
    this.panel = null;
    /** The panel's module; what stands there without one is of its document. */
    this.file = /** @type {string|null} */ (null);
    this.page = /** @type {PageDocument|null} */ (null);
    /** @type {(() => void)|undefined} asks for the engine's own map */
    this.goHome = undefined;
  }

  destroy() {
    this.panel?.destroy?.();
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
      if (file) void this.mount(file);
      else this.showNone();
      return;
    }
    this.guarded(() => this.panel?.update());
    this.showNoLog();
  }

  /** As long as there is no engine, one sentence stands for all the panel's figures. */
  showNoLog() {
    const { header, modelStatus } = this.store;
    const none = header === null && modelStatus !== null;
    setText(this.noLog, none ? noLog(modelStatus) : "");
    this.noLog.hidden = !none;
    if (this.root) this.root.hidden = none;
  }

  clear() {
    this.panel?.destroy?.();
    this.panel = this.root = null;
    this.element.replaceChildren();
    this.cleared();
  }

  showNone() {
    this.clear();
    this.element.append(staticNotice(this.store.document, this.goHome));
  }

  /** @param {string} file */
  async mount(file) {
    let module = null;
    let reason = "";
    try {
      // All of them now: a view's first picture is to come as fast as its second.
      await Promise.allSettled(PANEL_FILES.map((each) => import(each)));
      module = await import(file);
    } catch (error) {
      reason = messageOf(error);
    }
    if (file !== this.file) return;
    this.clear();
    if (!module) {
      this.element.append(
        el("div", {
          class: "gb-empty",
          text: `The panel of this view could not be loaded (${reason}).`,
        }),
      );
      return;
    }
    const root = el("div", { class: "gb-panel" });
    // The panel's own titles are below this one; who sees it has the view's tab instead.
    const title = el("h2", { class: "gb-sr", text: this.store.currentView?.label ?? "" });
    this.root = root;
    this.element.append(title, root, this.noLog);
    this.guarded(() => {
      this.panel = module.mount(root, this.store);
      this.panel.update();
    });
  }
}
