// @ts-check
/**
 * What is looked at: the document, a view, what is selected or open; and who is told when anything
 * changes.
 *
 * @typedef {{component: string|null, request: string|null, block: number|null}} Selection
 */
import { Log } from "./log.js";
import { keep, recall } from "./tab_memory.js";

/** @import { PageDocument, RefusedDocument } from "./document.js" */
/** @import { Store } from "./store.js" */

const MEMORY = {
  view: "glassbox.view",
  selection: "glassbox.selection",
  opened: "glassbox.opened",
};

export class LookedAt extends Log {
  constructor() {
    super();
    /** Told before another place is gone to: whoever keeps the way back. */
    this.onLeave = () => {};
    /** What is drawn: nothing is, before it came. */
    this.document = /** @type {PageDocument} */ (/** @type {unknown} */ (null));
    /** What is wrong with a document that was not drawn. @type {RefusedDocument|null} */
    this.refused = null;
    this.view = "";
    /** @type {Selection} */
    this.selection = { component: null, request: null, block: null };
    /** The log that request and block were chosen in; null: it is not known yet. */
    this.selectedIn = /** @type {string|null} */ (null);
    /** The document's id of the box whose inside is shown in the map's place. */
    this.opened = /** @type {string|null} */ (null);
    /** The engine's name of the box that a line elsewhere is about, while it is pointed at. */
    this.pointed = /** @type {string|null} */ (null);
    /** @type {Set<(store: any) => void>} */
    this.listeners = new Set();
    this.scheduled = 0;
    this.recall();
  }

  get currentView() {
    return this.document?.views?.find((view) => view.id === this.view) ?? null;
  }

  /** @param {PageDocument} pageDocument */
  setDocument(pageDocument) {
    if (this.document === pageDocument) return;
    this.document = pageDocument;
    const views = pageDocument.views ?? [];
    if (!views.some((view) => view.id === this.view)) this.view = views[0]?.id ?? "";
    const known = pageDocument.components.some((item) => item.id === this.selection.component);
    if (!known) this.selection = { ...this.selection, component: null };
    if (this.opened !== null && !this.canOpen(this.opened)) this.openBox(null);
    this.changed();
  }

  /**
   * Choose something beside what is chosen already. The inspector tells of a block first, so
   * whatever is chosen without one lets go of it.
   * @param {Partial<Selection>} partial
   * @param {string|null} [log] whose request or block it is, where that is still to come
   */
  select(partial, log = null) {
    this.selection = { ...this.selection, block: null, ...partial };
    this.selectedIn = log ?? this.header?.trace_id ?? null;
    keep(MEMORY.selection, { ...this.selection, log: this.selectedIn });
    this.changed();
  }

  /** A request or a block of another log is nobody here. */
  forgetStrangers() {
    const { request, block } = this.selection;
    const isOurs = this.selectedIn === null || this.selectedIn === this.header.trace_id;
    if (isOurs || (request === null && block === null)) return;
    this.select({ request: null });
  }

  /** Whether a box has an inside to show. @param {string} id */
  canOpen(id) {
    return this.document?.components.some((item) => item.id === id && item.live !== null) ?? false;
  }

  /**
   * Show the inside of a box in the map's place, and select it; null: the map again.
   * @param {string|null} id of the document
   */
  openBox(id) {
    if (this.opened === id || (id !== null && !this.canOpen(id))) return;
    this.onLeave();
    this.opened = id;
    keep(MEMORY.opened, id);
    if (id !== null) this.select({ component: id, request: null, block: null });
    this.changed();
  }

  /** @param {string|null} live */
  point(live) {
    if (this.pointed === live) return;
    this.pointed = live;
    this.changed();
  }

  /** @param {string} id */
  setView(id) {
    if (this.view === id || !this.document?.views?.some((view) => view.id === id)) return;
    this.onLeave();
    this.view = id;
    keep(MEMORY.view, id);
    this.changed();
  }

  recall() {
    this.view = recall(MEMORY.view) ?? "";
    const opened = recall(MEMORY.opened);
    this.opened = typeof opened === "string" ? opened : null;
    const kept = recall(MEMORY.selection);
    if (kept && typeof kept === "object") {
      const { component = null, request = null, block = null, log = null } = kept;
      this.selection = { component, request, block };
      this.selectedIn = log;
    }
  }

  // -- subscribers -------------------------------------------------------------------------------

  /** @param {(store: Store) => void} listener @returns {() => void} */
  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Tell the subscribers in the next frame, once however much changes until then. */
  changed() {
    if (this.scheduled) return;
    this.scheduled = requestAnimationFrame(() => {
      this.scheduled = 0;
      for (const listener of [...this.listeners]) listener(this);
    });
  }
}
