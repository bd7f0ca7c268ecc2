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
    /** @type {Map<string, {mount: (root: HTMLElement, store: Store) => any}>} modules by file */
    this.modules = new Map();
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
      if (file) this.show(file);
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
    const root = el("div", { class: "gb-panel" });
    // The panel's own titles are below this one; who sees it has the view's tab instead.
    const title = el("h2", { class: "gb-sr", text: this.store.currentView?.label ?? "" });
    this.root = root;
    this.element.append(title, root, this.noLog);
    this.showNoLog();
    this.guarded(() => {
      this.panel = this.modules.get(file)?.mount(root, this.store);
    });
  }
}
