// @ts-check
/**
 * The workspace: view tabs, map, inspector, transport and the panel of the view, in one shadow
 * root, around one store. `mount` is what the Streamlit component calls.
 */
import { Store } from "./core/store.js";
import { EngineLink } from "./core/stream.js";
import { ArchitectureMap } from "./map/map.js";
import { el, reconcile, setAttribute, setText } from "./page/dom.js";
import { Head } from "./page/head.js";
import { LessonGuide } from "./page/lesson.js";
import { Side } from "./page/side.js";
import { Theme } from "./page/theme.js";
import { Transport } from "./page/transport.js";
import { panelOf, staticNotice } from "./page/view_panel.js";
import { messageOf, shortened } from "./words/format.js";

const SHEETS = ["./style.css", "./panels.css"];

/** @import { PageDocument } from "./core/document.js" */

/** How long a workspace that left the page may take to come back. */
const PHONE = 760; // pixels; a map that is wider has the inspector near
const GONE_MS = 250;

/** One store, one stream and one clock for the page, however often the component is mounted. */
let shared = /** @type {Store|null} */ (null);
let lessons = /** @type {LessonGuide|null} */ (null);
/** How much the composer had sent when it was heard of last; null: nothing was heard yet. */
let sent = /** @type {number|null} */ (null);
/** @type {WeakMap<object, Workspace>} */
const mounted = new WeakMap();

/**
 * @param {{data: {document: any, version?: any, sent?: number, lesson?: any}, key?: string,
 *   parentElement: HTMLElement|ShadowRoot, setStateValue: (name: string, value: any) => void,
 *   setTriggerValue?: (name: string, value: any) => void}} component
 * @returns {() => void}
 */
export function mount(component) {
  const parent = component.parentElement;
  let workspace = mounted.get(parent);
  if (!workspace?.root.isConnected) {
    workspace?.destroy();
    workspace = new Workspace(parent, component.setStateValue);
    mounted.set(parent, workspace);
  }
  const trigger = component.setTriggerValue;
  workspace.goHome = trigger && (() => trigger("home", true));
  guide().tellPicked = trigger && ((box) => trigger("picked", box));
  workspace.setDocument(component.data?.document);
  showWhatWasSent(component.data?.sent ?? 0);
  const lesson = component.data?.lesson ?? null;
  workspace.root.toggleAttribute("data-lesson", lesson !== null);
  guide().apply(lesson);
  const current = workspace;
  return () => {
    // Streamlit may call again at once with new data: only what stays away is taken down.
    setTimeout(() => {
      if (!current.root.isConnected) current.destroy();
    }, GONE_MS);
  };
}

/** What the composer sends goes to the tab's own engine: show that one. @param {number} now */
function showWhatWasSent(now) {
  if (sent !== null && now > sent) {
    const page = store();
    page.link?.choose("own");
    if (!page.live) page.backToLive();
  }
  sent = now;
}

/** The page's store, made on first use: for tests and for other components of the page. */
export function store() {
  shared ??= new Store();
  return shared;
}

/** What lessons have the page show: one for the page, as the store is. */
function guide() {
  lessons ??= new LessonGuide(store());
  return lessons;
}

class Workspace {
  /**
   * @param {HTMLElement|ShadowRoot} parent
   * @param {(name: string, value: any) => void} setStateValue
   */
  constructor(parent, setStateValue) {
    this.store = store();
    this.root = el("div", { class: "gb", "data-theme": "light" });
    this.root.style.visibility = "hidden";
    parent.append(...sheets(() => (this.root.style.visibility = "")), this.root);
    const head = el("div", { class: "gb-head" });
    this.banners = el("div", { class: "gb-banners", "aria-live": "polite" });
    const map = el("section", { class: "gb-map", "aria-label": "Map" });
    const inspector = el("aside", { class: "gb-inspector", "aria-label": "Inspector" });
    const transport = el("section", { class: "gb-transport", "aria-label": "Transport" });
    this.panelArea = el("section", { class: "gb-panel-area", id: "gb-panel", role: "tabpanel" });
    this.root.append(
      el(
        "div",
        { class: "gb-grid" },
        el("div", { class: "gb-top" }, head, this.banners),
        map,
        inspector,
        transport,
        this.panelArea,
      ),
    );
    this.head = new Head(head, this.store);
    this.root.addEventListener("pointerdown", (event) => {
      if (!event.composedPath().includes(this.head.corner)) this.head.toggleHelp(false);
    });
    this.map = new ArchitectureMap(map, this.store);
    this.side = new Side(inspector, this.store);
    this.map.onChosen = () => {
      guide().picked();
      // On a phone what the box says stands far below the map.
      if (this.root.clientWidth <= PHONE) inspector.scrollIntoView({ block: "start" });
    };
    this.transport = new Transport(transport, this.store);
    /** @type {any} */
    this.panel = null;
    /** @type {Map<string, string>} by part, what it could not draw */
    this.faults = new Map();
    /** The panel's module; what stands there without one is of its document. */
    this.panelFile = /** @type {string|null} */ (null);
    this.panelPage = /** @type {PageDocument|null} */ (null);
    /** @type {(() => void)|undefined} asks for the engine's own map */
    this.goHome = undefined;
    this.theme = new Theme(this.root, () => this.store.changed());
    this.turn = 0;
    this.panelIsNext = false;
    this.unsubscribe = this.store.subscribe(() => this.update());
    this.stopLessons = guide().listen();
    this.onKey = (/** @type {KeyboardEvent} */ event) => this.pressed(event);
    document.addEventListener("keydown", this.onKey);
    this.onHide = () => this.store.remember();
    addEventListener("pagehide", this.onHide);
    this.link(setStateValue);
  }

  /** @param {(name: string, value: any) => void} setStateValue */
  link(setStateValue) {
    let told = "";
    const tell = (/** @type {string} */ key) => {
      if (told !== key) setStateValue("session", key);
      told = key;
    };
    if (this.store.link) {
      this.store.link.onSession = tell;
      if (this.store.link.key) tell(this.store.link.key);
      return;
    }
    this.store.link = new EngineLink(this.store, tell);
    if (this.store.live) this.store.link.open();
  }

  /** @param {any} page */
  setDocument(page) {
    // New data of another kind brings the same document in another object.
    if (page && JSON.stringify(page) !== JSON.stringify(this.store.document))
      this.store.setDocument(page);
  }

  destroy() {
    this.unsubscribe();
    cancelAnimationFrame(this.turn);
    this.stopLessons();
    document.removeEventListener("keydown", this.onKey);
    removeEventListener("pagehide", this.onHide);
    this.theme.destroy();
    this.panel?.destroy?.();
    this.map.destroy();
    this.transport.destroy();
    this.root.remove();
  }

  // -- keys --------------------------------------------------------------------------------------

  /** @param {KeyboardEvent} event */
  pressed(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.composedPath()[0];
    if (target instanceof Element && takesKeys(target, event.key)) return;
    if (!this.ownKey(event.key, event.shiftKey)) return;
    event.preventDefault();
  }

  /** @param {string} key @param {boolean} shift @returns {boolean} */
  ownKey(key, shift) {
    const { store } = this;
    if (key === "Escape") {
      if (!this.head.help.hidden) this.head.toggleHelp(false);
      else store.select({ component: null, request: null, block: null });
      return true;
    }
    if (/^[1-9]$/.test(key)) {
      const view = store.document?.views?.[Number(key) - 1];
      if (view) store.setView(view.id);
      this.head.tabsFollow();
      return Boolean(view);
    }
    return this.transport.key(key, shift);
  }

  // -- updating ----------------------------------------------------------------------------------

  /**
   * Map and panel take turns, a frame each, so that each frame has time for its part; the eye does
   * not see which was first. The map begins: a click on a box is answered in the next frame.
   */
  update() {
    if (!this.store.document) return;
    cancelAnimationFrame(this.turn);
    this.takeTurn();
    this.turn = requestAnimationFrame(() => {
      // The update that is to come in this very frame takes the turn itself.
      if (this.store.scheduled) return;
      this.takeTurn();
      this.panelIsNext = false;
    });
  }

  takeTurn() {
    if (this.panelIsNext) this.updatePanel();
    else this.updateMap();
    this.panelIsNext = !this.panelIsNext;
  }

  /** The map, and what stands around it. */
  updateMap() {
    this.guarded("header", () => this.head.update());
    this.guarded("map", () => this.map.update());
    this.guarded("inspector", () => this.side.update());
    this.guarded("transport", () => this.transport.update());
    this.updateBanners();
  }

  /**
   * One part that cannot draw must not take the others with it.
   * @param {string} name @param {() => void} act
   */
  guarded(name, act) {
    try {
      act();
    } catch (error) {
      if (this.faults.has(name)) return;
      this.faults.set(name, messageOf(error));
      console.error(`glassbox: ${name}`, error);
    }
  }

  updateBanners() {
    const { store } = this;
    /** @type {{key: string, kind: string, text: string, act?: [string, () => void]}[]} */
    const banners = [];
    if (this.head.problem)
      banners.push({
        key: "problem",
        kind: "bad",
        text: this.head.problem,
        act: ["Close", () => this.closeProblem()],
      });
    if (!store.live) {
      banners.push({
        key: "saved",
        kind: "warn",
        text: `Saved trace ${store.traceName}: no engine stands behind it.${otherMap(store)}`,
        act: ["Back to live", () => store.backToLive()],
      });
    }
    if (store.failure && store.cursor >= store.failure.index) {
      const act = /** @type {[string, () => void]} */ ([
        "Reset the engine",
        () => void store.command("reset", { config: null }),
      ]);
      banners.push({
        key: "failed",
        kind: "bad",
        text: `${failureText(store.failure.message)} Its log is kept; a reset begins a new one.`,
        act: store.canCommand ? act : undefined,
      });
    }
    for (const [name, message] of this.faults) {
      banners.push({
        key: `fault ${name}`,
        kind: "bad",
        text: `The ${name} could not draw a part of this log (${message}).`,
      });
    }
    reconcile(
      this.banners,
      banners,
      (banner) => `${banner.key} ${banner.act?.[0] ?? ""}`,
      makeBanner,
      (node, banner) => setText(node.firstElementChild, banner.text),
    );
  }

  closeProblem() {
    this.head.problem = "";
    this.store.changed();
  }

  // -- the panel ---------------------------------------------------------------------------------

  updatePanel() {
    const { store } = this;
    setAttribute(this.panelArea, "aria-labelledby", store.view ? `gb-tab-${store.view}` : null);
    const file = panelOf(store.document, store.currentView);
    if (file !== this.panelFile || (!file && this.panelPage !== store.document)) {
      this.panelFile = file;
      this.panelPage = store.document;
      if (file) void this.mountPanel(file);
      else this.showNoPanel();
      return;
    }
    this.guarded("panel", () => this.panel?.update());
  }

  clearPanel() {
    this.panel?.destroy?.();
    this.panel = null;
    this.panelArea.replaceChildren();
    this.faults.delete("panel");
  }

  showNoPanel() {
    this.clearPanel();
    this.panelArea.append(staticNotice(this.store.document, this.goHome));
  }

  /** @param {string} file */
  async mountPanel(file) {
    let module = null;
    let reason = "";
    try {
      module = await import(file);
    } catch (error) {
      reason = messageOf(error);
    }
    if (file !== this.panelFile) return;
    this.clearPanel();
    if (!module) {
      this.panelArea.append(
        el("div", {
          class: "gb-empty",
          text: `The panel of this view could not be loaded (${reason}).`,
        }),
      );
      return;
    }
    const root = el("div", { class: "gb-panel" });
    this.panelArea.append(root);
    this.guarded("panel", () => {
      this.panel = module.mount(root, this.store);
      this.panel.update();
    });
  }
}

/** What is to be said where a trace was recorded beside another map. @param {Store} store */
function otherMap(store) {
  const recorded = store.header?.document;
  if (!recorded || recorded === store.document.meta?.title) return "";
  return (
    ` It was recorded under another document, “${shortened(recorded, 80)}”: what happened at ` +
    "boxes that this map has not is in the panels alone."
  );
}

/** @param {string} message of the engine, which may or may not be a sentence already */
function failureText(message) {
  const stopped = message.startsWith("the engine stopped");
  const text = stopped ? `T${message.slice(1)}` : `The engine failed: ${message}`;
  return text.endsWith(".") ? text : `${text}.`;
}

/** @param {() => void} onReady @returns {HTMLLinkElement[]} */
function sheets(onReady) {
  let open = SHEETS.length;
  const done = () => {
    open -= 1;
    if (!open) onReady();
  };
  return SHEETS.map(
    (file) =>
      /** @type {HTMLLinkElement} */ (
        el("link", {
          rel: "stylesheet",
          href: new URL(file, import.meta.url).href,
          onload: done,
          onerror: done,
        })
      ),
  );
}

/** @param {any} banner */
function makeBanner(banner) {
  const button =
    banner.act &&
    el("button", {
      class: "gb-button",
      type: "button",
      text: banner.act[0],
      onclick: banner.act[1],
    });
  return el(
    "div",
    { class: "gb-banner", "data-kind": banner.kind, role: "status" },
    el("p"),
    button,
  );
}

/** Whether an element wants a key for itself. @param {Element} target @param {string} key */
function takesKeys(target, key) {
  if (
    target.closest(
      "input:not([type=range]):not([type=checkbox]), textarea, select, " +
        "[contenteditable=true], [contenteditable='']",
    )
  )
    return true;
  if (target.matches("input[type=range]"))
    return key.startsWith("Arrow") || key === "Home" || key === "End";
  if (key === " " || key === "Enter")
    return Boolean(
      target.closest(
        "button, a, summary, [role=button], [role=radio], [role=tab], [role=checkbox]",
      ),
    );
  if (key.startsWith("Arrow") || key === "Home" || key === "End") {
    return Boolean(
      target.closest(
        "[role=tab], [role=radio], [role=radiogroup], [role=slider], [role=menu], " +
          "[role=listbox], pre",
      ),
    );
  }
  return false;
}
