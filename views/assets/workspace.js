// @ts-check
/**
 * The workspace: view tabs, map, inspector, transport and the panel of the view, in one shadow
 * root, around one store. `mount` is what the Streamlit component calls.
 */
import { Store } from "./core/store.js";
import { EngineLink } from "./core/stream.js";
import { PHONE } from "./map/foot.js";
import { ArchitectureMap } from "./map/map.js";
import { DocumentWatch } from "./page/document_watch.js";
import { el } from "./page/dom.js";
import { Address } from "./page/address.js";
import { Announcer } from "./page/announcer.js";
import { Banners } from "./page/banners.js";
import { Head } from "./page/head.js";
import { LessonGuide } from "./page/lesson.js";
import { followMember } from "./page/member.js";
import { PanelPlace } from "./page/panel_place.js";
import { sheets } from "./page/sheets.js";
import { Side } from "./page/side.js";
import { takesKeys } from "./page/takes_keys.js";
import { Theme } from "./page/theme.js";
import { TourMode } from "./page/tour.js";
import { Transport } from "./page/transport.js";
import { Wishes } from "./page/wishes.js";
import { Yours } from "./page/yours.js";
import { messageOf } from "./words/format.js";

/** How long a workspace that left the page may take to come back. */
const GONE_MS = 250;
/** Within this a second tap belongs to the first. */
const SECOND_TAP_MS = 350;

/** One store, one stream and one clock for the page, however often the component is mounted. */
let shared = /** @type {Store|null} */ (null);
let lessons = /** @type {LessonGuide|null} */ (null);
let theTour = /** @type {TourMode|null} */ (null);
let theAddress = /** @type {Address|null} */ (null);
/** How much the composer had sent when it was heard of last; null: nothing was heard yet. */
let sent = /** @type {number|null} */ (null);
/** @type {WeakMap<object, Workspace>} */
const mounted = new WeakMap();

/**
 * @param {{data: {document: any, file?: string|null, written?: string, version?: any,
 *   sent?: number, sent_to?: "own"|"shared", mine?: string|null, lesson?: any, named?: any,
 *   tour?: import("./page/tour.js").Tour|null,
 *   refused?: any, session?: string|null,
 *   heard?: number, member?: import("./page/kept_secret.js").Secret|null}, key?: string,
 *   parentElement: HTMLElement|ShadowRoot,
 *   setStateValue: (name: string, value: any) => void,
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
  wishes.tell = (open) => component.setStateValue("wishes", open);
  wishes.heard(component.data?.heard ?? 0);
  workspace.head.openDocument = (name, text) => wishes.ask("given", { name, text });
  workspace.panel.goHome = () => wishes.ask("home");
  workspace.tellAgain(component.data?.session ?? null, component.setStateValue);
  followMember(component.data?.member ?? null, component.setStateValue);
  guide().tellPicked = (box) => wishes.ask("picked", box);
  guide().tellMarked = (moment) => wishes.ask("marked", moment);
  workspace.setDocument(component.data?.document);
  const { file = null, written = "", refused = null } = component.data ?? {};
  store().refused = refused;
  store().changed();
  watch.follow(file, written, trigger && (() => trigger("changed", true)));
  workspace.yours.source = component.data?.mine ?? null;
  showWhatWasSent(component.data?.sent ?? 0, component.data?.sent_to ?? "own");
  address().tell = (place) => component.setStateValue("arrived", place);
  address().heard(component.data?.named ?? null);
  const lesson = component.data?.lesson ?? null;
  workspace.root.toggleAttribute("data-lesson", lesson !== null);
  guide().apply(lesson);
  tour().attach(workspace.root);
  tour().follow(component.data?.tour ?? null);
  address().update();
  const current = workspace;
  return () => {
    // Streamlit may call again at once with new data: only what stays away is taken down.
    setTimeout(() => {
      if (!current.root.isConnected) current.destroy();
    }, GONE_MS);
  };
}

/**
 * Show the engine that the composer sent to: the tab's own, or the class's.
 * @param {number} now @param {"own"|"shared"} to
 */
function showWhatWasSent(now, to) {
  if (sent !== null && now > sent) {
    const page = store();
    page.link?.choose(to);
    if (!page.live) page.backToLive();
  }
  sent = now;
}

/** The page's store, made on first use: for tests and for other components of the page. */
export function store() {
  shared ??= new Store();
  return shared;
}

/** One for the page, too: it asks about one file at a time. */
const watch = new DocumentWatch();

/** What the server has to do, in the order in which it was wished for. */
const wishes = new Wishes();

/** What lessons have the page show: one for the page, as the store is. */
function guide() {
  lessons ??= new LessonGuide(store());
  return lessons;
}

/** Tour mode: one for the page. */
function tour() {
  theTour ??= new TourMode(store());
  return theTour;
}

/** What its address has the page show: one for the page. */
function address() {
  theAddress ??= new Address(store());
  return theAddress;
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
    const banners = el("div", { class: "gb-banners", "aria-live": "polite" });
    const yours = el("div", { class: "gb-yours", hidden: true });
    const map = el("section", { class: "gb-map", "aria-label": "Map" });
    const inspector = el("aside", { class: "gb-inspector", "aria-label": "Inspector" });
    const transport = el("section", { class: "gb-transport", "aria-label": "Transport" });
    /** @type {Map<string, string>} by part, what it could not draw */
    this.faults = new Map();
    this.panel = new PanelPlace(
      this.store,
      (act) => this.guarded("panel", act),
      () => this.faults.delete("panel"),
    );
    this.root.append(
      el(
        "div",
        { class: "gb-grid" },
        el("div", { class: "gb-top" }, banners, yours, head),
        map,
        inspector,
        transport,
        this.panel.element,
      ),
    );
    this.yours = new Yours(yours, this.store);
    this.head = new Head(head, this.store, address());
    this.root.addEventListener("pointerdown", (event) => {
      if (!event.composedPath().includes(this.head.corner)) this.head.toggleHelp(false);
    });
    this.map = new ArchitectureMap(map, this.store);
    this.side = new Side(inspector, this.store);
    this.side.answerMarks(this.root);
    address().side = this.side;
    guide().showClaim = (claim) => this.side.showLinked("claims", [claim]);
    guide().showLit = () => this.map.showChosen();
    this.tap = 0;
    // On a phone what the box says stands far below the map; a second tap opens the box instead.
    const show = () => {
      const { opened, selection } = this.store;
      if (opened === null && selection.component) inspector.scrollIntoView({ block: "start" });
    };
    this.map.onChosen = () => {
      guide().picked();
      clearTimeout(this.tap);
      if (this.root.clientWidth <= PHONE) this.tap = setTimeout(show, SECOND_TAP_MS);
    };
    this.transport = new Transport(transport, this.store);
    this.announcer = new Announcer(this.store, () => this.panel.sentence);
    this.root.append(this.announcer.element);
    this.theme = new Theme(this.root, () => this.store.changed());
    this.turn = 0;
    this.panelIsNext = false;
    this.banners = new Banners(banners, this.store, address(), this.head, this.faults);
    this.unsubscribe = this.store.subscribe(() => this.update());
    this.stopLessons = guide().listen();
    this.stopAddress = address().listen();
    this.stopTour = tour().listen();
    this.onKey = (/** @type {KeyboardEvent} */ event) => this.pressed(event);
    document.addEventListener("keydown", this.onKey);
    this.onHide = () => this.store.remember();
    addEventListener("pagehide", this.onHide);
    this.setStateValue = setStateValue;
    this.log = ""; // that was heard of last
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

  /**
   * Streamlit may forget what it was told while it draws the page anew: without the key there is
   * no engine to send to. So it says which key it knows.
   * @param {string|null} known @param {(name: string, value: any) => void} setStateValue
   */
  tellAgain(known, setStateValue) {
    const key = this.store.link?.key;
    if (key && known !== key) setStateValue("session", key);
  }

  /** Another log of the tab's own engine: what the page says of the last one is out of date. */
  tellLog() {
    const { live, engine, header } = this.store;
    if (!live || engine !== "own" || !header) return;
    const before = this.log;
    this.log = header.trace_id;
    if (before && before !== this.log) this.setStateValue("trace", this.log);
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
    clearTimeout(this.tap);
    this.stopLessons();
    this.stopAddress();
    this.stopTour();
    document.removeEventListener("keydown", this.onKey);
    removeEventListener("pagehide", this.onHide);
    this.theme.destroy();
    this.panel.destroy();
    this.head.destroy();
    this.map.destroy();
    this.transport.destroy();
    this.announcer.destroy();
    this.root.remove();
  }

  // -- keys --------------------------------------------------------------------------------------

  /** @param {KeyboardEvent} event */
  pressed(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.composedPath()[0];
    if (target instanceof Element && takesKeys(target, event.key)) return;
    if (event.key.length === 1 && !this.head.takesLetters) return;
    if (!this.ownKey(event.key, event.shiftKey)) return;
    event.preventDefault();
  }

  /** @param {string} key @param {boolean} shift @returns {boolean} */
  ownKey(key, shift) {
    const { store } = this;
    if (key === "Escape") {
      if (!this.head.help.hidden) this.head.toggleHelp(false);
      else if (store.opened !== null) store.openBox(null);
      else store.select({ component: null, request: null, block: null });
      return true;
    }
    if (key === "?") {
      this.head.toggleHelp();
      return true;
    }
    if (key === "/") {
      void guide().lookUp();
      return true;
    }
    if (/^[1-9]$/.test(key)) {
      const view = store.document?.views?.[Number(key) - 1];
      if (view) store.setView(view.id);
      this.head.tabsFollow();
      return Boolean(view);
    }
    return this.head.moment.key(key) || this.transport.key(key, shift);
  }

  // -- updating ----------------------------------------------------------------------------------

  /**
   * Where the cursor stands, all is drawn in one frame: what a jump or another view shows is
   * there as soon as it can be, and nothing of before is beside it. The panel comes first: its
   * pictures need the page's styles worked out, which is little while nothing else has changed.
   *
   * While it goes on by itself, map and panel take turns, a frame each, so that each frame has time
   * for its part; the eye does not see which was first.
   */
  update() {
    if (!this.store.document) return;
    cancelAnimationFrame(this.turn);
    if (!this.store.moves) {
      this.panelIsNext = false;
      this.panel.update();
      this.updateMap();
      return;
    }
    this.takeTurn();
    this.turn = requestAnimationFrame(() => {
      // The update that is to come in this very frame takes the turn itself.
      if (this.store.scheduled) return;
      this.takeTurn();
      this.panelIsNext = false;
    });
  }

  takeTurn() {
    if (this.panelIsNext) this.panel.update();
    else this.updateMap();
    this.panelIsNext = !this.panelIsNext;
  }

  /** The map, and what stands around it. */
  updateMap() {
    this.guarded("header", () => this.head.update());
    this.guarded("yours", () => this.yours.update());
    this.guarded("map", () => this.map.update());
    this.guarded("inspector", () => this.side.update());
    this.guarded("transport", () => this.transport.update());
    this.guarded("announcer", () => this.announcer.update());
    this.banners.update();
    this.tellLog();
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
}
