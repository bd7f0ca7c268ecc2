// @ts-check
/**
 * The workspace: view tabs, map, inspector, transport and the panel of the view, in one shadow
 * root, around one store. `mount` is what the Streamlit component calls.
 */
import { el, icon, reconcile, setAttribute, setText } from "./dom.js";
import { Inspector } from "./inspector.js";
import { ArchitectureMap } from "./map.js";
import { Store } from "./store.js";
import { EngineLink } from "./stream.js";
import { Transport } from "./transport.js";

/** View id -> panel module; a view that has none shows the first. */
const PANELS = {
  "request-lifecycle": "./panel_lifecycle.js",
  "block-allocation": "./panel_blocks.js",
  "cuda-acceleration": "./panel_graph.js",
};
const OTHER_PANEL = PANELS["request-lifecycle"];
const SHEETS = ["./style.css", "./panels.css"];
const THEME_EVERY = 1000;

const ICONS = {
  save: "M7 2h2v6h2.5L8 11.5 4.5 8H7zM2 12h12v2H2z",
  open: "M2 3h4.5l1.5 2H14v8H2z",
  reset: "M8 3a5 5 0 1 1-4.6 3H1.6L4.2 3l2.6 3H5a3.4 3.4 0 1 0 3-1.4z",
  help: "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zm-.8 9.4h1.6v1.6H7.2zm.8-7.5c1.6 0 2.8 1 2.8 2.4 0 1.2-.7 1.7-1.3 2.1-.5.4-.7.6-.7 1.2v.6H7.2v-.7c0-1.3.7-1.8 1.3-2.2.5-.4.7-.5.7-1 0-.5-.5-.9-1.2-.9s-1.3.5-1.3 1.2H5.1c0-1.6 1.2-2.7 2.9-2.7z",
};

const SHORTCUTS = [
  [["Space"], "run or pause"],
  [["→", "←"], "on or back by one event"],
  [["Shift →", "Shift ←"], "on or back by one phase"],
  [["n", "]"], "on by one step"],
  [["p", "["], "back by one step"],
  [["Home", "End"], "to the start, to the newest record"],
  [["1", "…", "5"], "choose a view"],
  [["Esc"], "deselect"],
  [["Tab", "↑ ↓ ← →"], "reach the map and walk from box to box"],
  [["Enter"], "select the box"],
  [["+", "-", "0"], "zoom the map, fit it"],
];

/** One store, one stream and one clock for the page, however often the component is mounted. */
let shared = /** @type {Store|null} */ (null);
/** @type {WeakMap<object, Workspace>} */
const mounted = new WeakMap();

/**
 * @param {{data: {document: any, version?: any}, key?: string,
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
  workspace.setDocument(component.data?.document);
  const current = workspace;
  return () => {
    // Streamlit may call again at once with new data: only what stays away is taken down.
    setTimeout(() => {
      if (!current.root.isConnected) current.destroy();
    }, 0);
  };
}

/** The page's store, made on first use: for tests and for other components of the page. */
export function store() {
  shared ??= new Store();
  return shared;
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
    this.head = el("div", { class: "gb-head" });
    this.banners = el("div", { class: "gb-banners", "aria-live": "polite" });
    const map = el("section", { class: "gb-map", "aria-label": "Map" });
    const inspector = el("aside", { class: "gb-inspector", "aria-label": "Inspector" });
    const transport = el("section", { class: "gb-transport", "aria-label": "Transport" });
    this.panelArea = el("section", { class: "gb-panel-area", id: "gb-panel", role: "tabpanel" });
    this.root.append(el("div", { class: "gb-grid" }, this.head, this.banners, map, inspector, transport, this.panelArea));
    this.map = new ArchitectureMap(map, this.store);
    this.inspector = new Inspector(inspector, this.store);
    this.transport = new Transport(transport, this.store);
    this.buildHead();
    /** @type {any} */
    this.panel = null;
    this.panelFile = "";
    this.theme = new Theme(this.root, () => this.store.changed());
    this.unsubscribe = this.store.subscribe(() => this.update());
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
    if (page) this.store.setDocument(page);
  }

  destroy() {
    this.unsubscribe();
    document.removeEventListener("keydown", this.onKey);
    removeEventListener("pagehide", this.onHide);
    this.theme.destroy();
    this.panel?.destroy?.();
    this.map.destroy();
    this.transport.destroy();
    this.root.remove();
  }

  // -- head ---------------------------------------------------------------------------------------

  buildHead() {
    this.tabs = el("div", { class: "gb-tabs", role: "tablist", "aria-label": "Views" });
    this.tabs.addEventListener("keydown", (event) => this.tabPressed(event));
    this.status = el("span", { class: "gb-status" });
    this.engines = /** @type {HTMLSelectElement} */ (
      el("select", { class: "gb-select", "aria-label": "Engine", title: "Whose engine is shown", onchange: () => this.chooseEngine() },
        el("option", { value: "own", text: "my engine" }),
        el("option", { value: "shared", text: "shared engine" }))
    );
    this.file = /** @type {HTMLInputElement} */ (
      el("input", { type: "file", accept: ".jsonl,application/jsonl,text/plain", class: "gb-hidden", tabindex: "-1", "aria-label": "Open a saved trace", onchange: () => void this.openFile() })
    );
    const button = (/** @type {string} */ name, /** @type {string} */ text, /** @type {string} */ title, /** @type {() => void} */ act) =>
      el("button", { class: "gb-button is-quiet", type: "button", title, "data-act": name, onclick: act }, icon(ICONS[name]), text);
    this.saveButton = button("save", "Save", "Save the log of this engine as a file", () => void this.save());
    this.openButton = button("open", "Open", "Open a saved trace", () => this.file.click());
    this.resetButton = button("reset", "Reset", "Begin again with an empty engine of the same settings", () => void this.store.command("reset", { config: null }));
    this.helpButton = button("help", "", "Keyboard shortcuts", () => this.toggleHelp());
    this.helpButton.setAttribute("aria-label", "Keyboard shortcuts");
    this.helpButton.setAttribute("aria-expanded", "false");
    this.help = this.makeHelp();
    const tools = el("div", { class: "gb-tools" }, this.status, this.engines, this.saveButton, this.openButton, this.file, this.resetButton, this.helpButton);
    const holder = el("div", { style: "position:relative" }, tools, this.help);
    this.head.append(this.tabs, holder);
  }

  makeHelp() {
    const items = SHORTCUTS.flatMap(([keys, text]) => [
      el("dt", {}, .../** @type {string[]} */ (keys).map((key) => (key === "…" ? key : el("kbd", { text: key })))),
      el("dd", { text: /** @type {string} */ (text) }),
    ]);
    return el("div", { class: "gb-popover", role: "dialog", "aria-label": "Keyboard shortcuts", hidden: true, style: "right:0;top:38px" },
      el("h3", { text: "Keyboard" }), el("dl", { class: "gb-keys" }, ...items));
  }

  /** @param {boolean} [open] */
  toggleHelp(open = this.help.hidden) {
    this.help.hidden = !open;
    this.helpButton.setAttribute("aria-expanded", String(open));
  }

  chooseEngine() {
    this.store.link?.choose(/** @type {"own"|"shared"} */ (this.engines.value));
  }

  async save() {
    const { store } = this;
    try {
      const blob = await /** @type {EngineLink} */ (store.link).traceFile();
      const link = el("a", { href: URL.createObjectURL(blob), download: `glassbox-${store.header?.trace_id ?? "trace"}.jsonl` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(/** @type {HTMLAnchorElement} */ (link).href), 10_000);
    } catch (error) {
      store.tell("error", `The trace could not be saved: ${messageOf(error)}`);
    }
  }

  async openFile() {
    const file = this.file.files?.[0];
    this.file.value = "";
    if (!file) return;
    try {
      this.store.openTrace(await file.text(), file.name);
      this.problem = "";
    } catch (error) {
      this.problem = `${file.name} cannot be opened: ${messageOf(error)}`;
    }
    this.store.changed();
  }

  // -- keys ---------------------------------------------------------------------------------------

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
      if (!this.help.hidden) this.toggleHelp(false);
      else store.select({ component: null, request: null, block: null });
      return true;
    }
    if (/^[1-9]$/.test(key)) {
      const view = store.document?.views?.[Number(key) - 1];
      if (view) store.setView(view.id);
      return Boolean(view);
    }
    return this.transport.key(key, shift);
  }

  /** @param {KeyboardEvent} event */
  tabPressed(event) {
    const views = this.store.document?.views ?? [];
    const at = views.findIndex((view) => view.id === this.store.view);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: views.length - 1 }[event.key];
    if (to === undefined || !views.length) return;
    event.preventDefault();
    event.stopPropagation();
    this.store.setView(views[(to + views.length) % views.length].id);
    this.updateTabs();
    /** @type {HTMLElement|null} */ (this.tabs.querySelector("[aria-selected=true]"))?.focus();
  }

  // -- updating -----------------------------------------------------------------------------------

  update() {
    if (!this.store.document) return;
    this.updateTabs();
    this.updateTools();
    this.updateBanners();
    this.guarded("map", () => this.map.update());
    this.guarded("inspector", () => this.inspector.update());
    this.guarded("transport", () => this.transport.update());
    this.updatePanel();
  }

  /** One part that cannot draw must not take the others with it. @param {string} name @param {() => void} act */
  guarded(name, act) {
    try {
      act();
    } catch (error) {
      if (this.faults?.has(name)) return;
      (this.faults ??= new Map()).set(name, messageOf(error));
      console.error(`glassbox: ${name}`, error);
    }
  }

  updateTabs() {
    const { store } = this;
    reconcile(
      this.tabs,
      store.document.views ?? [],
      (view) => view.id,
      (view) =>
        el("button", { class: "gb-tab", type: "button", role: "tab", id: `gb-tab-${view.id}`, "aria-controls": "gb-panel", text: view.label, onclick: () => store.setView(view.id) }),
      (node, view) => {
        setAttribute(node, "aria-selected", String(view.id === store.view));
        setAttribute(node, "tabindex", view.id === store.view ? "0" : "-1");
      },
    );
    this.tabs.hidden = !store.document.views?.length;
    setAttribute(this.panelArea, "aria-labelledby", store.view ? `gb-tab-${store.view}` : null);
  }

  updateTools() {
    const { store } = this;
    const status = statusOf(store);
    setAttribute(this.status, "data-status", status);
    setText(this.status, status);
    if (this.engines.value !== store.engine) this.engines.value = store.engine;
    this.engines.hidden = !store.live;
    const why = store.whyNoCommand;
    setAttribute(this.resetButton, "disabled", why ? "" : null);
    this.resetButton.title = why || "Begin again with an empty engine of the same settings";
    setAttribute(this.saveButton, "disabled", store.live && store.header ? null : "");
  }

  updateBanners() {
    const { store } = this;
    /** @type {{key: string, kind: string, text: string, act?: [string, () => void]}[]} */
    const banners = [];
    if (this.problem) banners.push({ key: "problem", kind: "bad", text: this.problem, act: ["Close", () => this.closeProblem()] });
    if (!store.live) {
      banners.push({ key: "saved", kind: "warn", text: `Saved trace ${store.traceName}: no engine stands behind it.`, act: ["Back to live", () => store.backToLive()] });
    }
    if (store.failure && store.cursor >= store.failure.index) {
      const act = /** @type {[string, () => void]} */ (["Reset the engine", () => void store.command("reset", { config: null })]);
      banners.push({ key: "failed", kind: "bad", text: `The engine failed: ${store.failure.message} Its log is kept; a reset begins a new one.`, act: store.canCommand ? act : undefined });
    }
    for (const [name, message] of this.faults ?? []) {
      banners.push({ key: `fault ${name}`, kind: "bad", text: `The ${name} could not draw a part of this log (${message}).` });
    }
    reconcile(this.banners, banners, (banner) => `${banner.key} ${banner.act?.[0] ?? ""}`, makeBanner, (node, banner) => setText(node.firstElementChild, banner.text));
  }

  closeProblem() {
    this.problem = "";
    this.store.changed();
  }

  // -- the panel ----------------------------------------------------------------------------------

  updatePanel() {
    const { store } = this;
    const file = Object.hasOwn(PANELS, store.view) ? PANELS[store.view] : OTHER_PANEL;
    if (file !== this.panelFile) {
      this.panelFile = file;
      void this.mountPanel(file);
      return;
    }
    this.guarded("panel", () => this.panel?.update());
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
    this.panel?.destroy?.();
    this.panel = null;
    this.panelArea.replaceChildren();
    this.faults?.delete("panel");
    if (!module) {
      this.panelArea.append(el("div", { class: "gb-empty", text: `The panel of this view could not be loaded (${reason}).` }));
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

/** The theme is what Streamlit's background says: it has no flag, and it can change at any time. */
class Theme {
  /** @param {HTMLElement} root @param {() => void} onChange */
  constructor(root, onChange) {
    this.root = root;
    this.onChange = onChange;
    this.media = matchMedia("(prefers-color-scheme: dark)");
    this.check = () => this.apply();
    this.media.addEventListener("change", this.check);
    this.observer = new MutationObserver(this.check);
    const app = document.querySelector(".stApp");
    for (const node of [document.documentElement, document.body, app]) {
      if (node) this.observer.observe(node, { attributes: true, attributeFilter: ["class", "style", "data-theme"] });
    }
    this.observer.observe(document.head, { childList: true });
    // Streamlit writes rules without touching the tree, which no observer sees.
    this.timer = setInterval(this.check, THEME_EVERY);
    this.apply();
  }

  destroy() {
    this.observer.disconnect();
    this.media.removeEventListener("change", this.check);
    clearInterval(this.timer);
  }

  apply() {
    const theme = isDark(backgroundBehind(this.root)) ? "dark" : "light";
    if (this.root.dataset.theme === theme) return;
    this.root.dataset.theme = theme;
    this.onChange();
  }
}

/** @param {Element} node @returns {string} the first background that is not transparent */
function backgroundBehind(node) {
  const host = node.getRootNode();
  /** @type {Element|null} */
  let place = host instanceof ShadowRoot ? host.host : node.parentElement;
  while (place) {
    const colour = getComputedStyle(place).backgroundColor;
    if (!/^(transparent|rgba\(.*,\s*0\))$/.test(colour)) return colour;
    const root = place.getRootNode();
    place = place.parentElement ?? (root instanceof ShadowRoot ? root.host : null);
  }
  return matchMedia("(prefers-color-scheme: dark)").matches && !document.body.style.background ? "rgb(255,255,255)" : "rgb(255,255,255)";
}

/** @param {string} colour */
function isDark(colour) {
  const [r, g, b] = (colour.match(/[\d.]+/g) ?? ["255", "255", "255"]).map(Number);
  const scale = colour.startsWith("color(") ? 255 : 1;
  return (0.299 * r + 0.587 * g + 0.114 * b) * scale < 128;
}

/** @param {() => void} onReady @returns {HTMLLinkElement[]} */
function sheets(onReady) {
  let open = SHEETS.length;
  const done = () => {
    open -= 1;
    if (!open) onReady();
  };
  return SHEETS.map((file) => /** @type {HTMLLinkElement} */ (
    el("link", { rel: "stylesheet", href: new URL(file, import.meta.url).href, onload: done, onerror: done })
  ));
}

/** @param {any} banner */
function makeBanner(banner) {
  const button = banner.act && el("button", { class: "gb-button", type: "button", text: banner.act[0], onclick: banner.act[1] });
  return el("div", { class: "gb-banner", "data-kind": banner.kind, role: "status" }, el("p"), button);
}

/** @param {Store} store */
function statusOf(store) {
  if (!store.live) return "saved trace";
  if (store.connection === "lost") return "lost";
  if (store.connection !== "open") return "connecting";
  if (!store.header) return "loading";
  if (store.failure) return "failed";
  return store.headEngine.mode === "running" ? "running" : "paused";
}

/** Whether an element wants a key for itself. @param {Element} target @param {string} key */
function takesKeys(target, key) {
  if (target.closest("input:not([type=range]):not([type=checkbox]), textarea, select, [contenteditable=true], [contenteditable='']")) return true;
  if (target.matches("input[type=range]")) return key.startsWith("Arrow") || key === "Home" || key === "End";
  if (key === " " || key === "Enter") return Boolean(target.closest("button, a, summary, [role=button], [role=radio], [role=tab], [role=checkbox]"));
  if (key.startsWith("Arrow") || key === "Home" || key === "End") {
    return Boolean(target.closest("[role=tab], [role=radio], [role=radiogroup], [role=slider], [role=menu], [role=listbox], pre"));
  }
  return false;
}

/** @param {unknown} error */
function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}
