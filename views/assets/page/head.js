// @ts-check
/**
 * The row above the map: the tabs of the views, whose engine is shown, and what can be done with
 * its log.
 */
import { MAX_FILE, tooLarge } from "../core/trace_file.js";
import { messageOf } from "../words/format.js";
import { el, icon, reconcile, setAttribute, setText } from "./dom.js";

/** @import { Store } from "../core/store.js" */
/** @import { EngineLink } from "../core/stream.js" */

/** @type {Record<string, string>} paths in a square of 16 */
const ICONS = {
  save: "M7 2h2v6h2.5L8 11.5 4.5 8H7zM2 12h12v2H2z",
  open: "M2 3h4.5l1.5 2H14v8H2z",
  reset: "M8 3a5 5 0 1 1-4.6 3H1.6L4.2 3l2.6 3H5a3.4 3.4 0 1 0 3-1.4z",
  help:
    "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zm-.8 9.4h1.6v1.6H7.2zm.8-7.5c1.6 0 2.8 1 " +
    "2.8 2.4 0 1.2-.7 1.7-1.3 2.1-.5.4-.7.6-.7 1.2v.6H7.2v-.7c0-1.3.7-1.8 1.3-2.2.5-.4.7-.5" +
    ".7-1 0-.5-.5-.9-1.2-.9s-1.3.5-1.3 1.2H5.1c0-1.6 1.2-2.7 2.9-2.7z",
};

const SHORTCUTS = [
  [["Space"], "run or pause"],
  [["→", "←"], "on or back by one event"],
  [["Shift →", "Shift ←"], "on or back by one phase"],
  [["n", "]"], "on by one step"],
  [["p", "["], "back by one step"],
  [["Home", "End"], "to the start, to the newest record"],
  [["Esc"], "deselect"],
  [["Tab"], "walk the map as a request does, box by box"],
  [["↑ ↓ ← →"], "to the nearest box in that direction"],
  [["Enter"], "select the box"],
  [["+", "-", "0"], "zoom the map, fit it"],
];

const RESET_TITLE = "Begin again with an empty engine of the same settings";

export class Head {
  /**
   * @param {HTMLElement} root
   * @param {Store} store
   */
  constructor(root, store) {
    this.store = store;
    this.problem = ""; // why a file could not be opened
    this.tabs = el("div", { class: "gb-tabs", role: "tablist", "aria-label": "Views" });
    this.tabs.addEventListener("keydown", (event) => this.tabPressed(event));
    this.status = el("span", { class: "gb-status" });
    this.engines = this.engineSelect();
    this.file = this.fileInput();
    const saveTitle = "Save the log of this engine as a file";
    this.saveButton = tool("save", "Save", saveTitle, () => void this.save());
    this.openButton = tool("open", "Open", "Open a saved trace", () => this.file.click());
    this.resetButton = tool("reset", "Reset", RESET_TITLE, () => void this.reset());
    this.helpButton = tool("help", "", "Keyboard shortcuts", () => this.toggleHelp());
    this.helpButton.setAttribute("aria-label", "Keyboard shortcuts");
    this.helpButton.setAttribute("aria-expanded", "false");
    this.help = makeHelp();
    /** @type {HTMLElement[]} the row of the views' keys in the help */
    this.viewKeys = [];
    const tools = [
      this.status,
      this.engines,
      this.saveButton,
      this.openButton,
      this.file,
      this.resetButton,
      this.helpButton,
    ];
    this.corner = el(
      "div",
      { class: "gb-corner" },
      el("div", { class: "gb-tools" }, ...tools),
      this.help,
    );
    root.append(this.tabs, this.corner);
  }

  /** @returns {HTMLSelectElement} */
  engineSelect() {
    const select = el(
      "select",
      {
        class: "gb-select",
        "aria-label": "Engine",
        title: "Whose engine is shown",
        onchange: () => this.chooseEngine(),
      },
      el("option", { value: "own", text: "my engine" }),
      el("option", { value: "shared", text: "shared engine" }),
    );
    return /** @type {HTMLSelectElement} */ (select);
  }

  /** @returns {HTMLInputElement} */
  fileInput() {
    const input = el("input", {
      type: "file",
      accept: ".jsonl,application/jsonl,text/plain",
      class: "gb-hidden",
      tabindex: "-1",
      "aria-label": "Open a saved trace",
      onchange: () => void this.openFile(),
    });
    return /** @type {HTMLInputElement} */ (input);
  }

  reset() {
    return this.store.command("reset", { config: null });
  }

  update() {
    this.updateTabs();
    this.updateTools();
  }

  /** @param {boolean} [open] */
  toggleHelp(open = this.help.hidden !== false) {
    const views = this.store.document?.views?.length ?? 0;
    if (open) {
      for (const node of this.viewKeys) node.remove();
      this.viewKeys = views ? viewKeys(views) : [];
      this.help.lastElementChild?.append(...this.viewKeys);
    }
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
      const link = el("a", {
        href: URL.createObjectURL(blob),
        download: `glassbox-${store.header?.trace_id ?? "trace"}.jsonl`,
      });
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
      if (file.size > MAX_FILE) throw new Error(tooLarge());
      this.store.openTrace(await file.text(), file.name);
      this.problem = "";
    } catch (error) {
      this.problem =
        `${file.name} cannot be opened: ${messageOf(error)}. What was shown stays. Correct that ` +
        "place, or save the trace again.";
    }
    this.store.changed();
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
    this.tabsFollow();
  }

  /** Where a tab has the focus, the chosen one has it. */
  tabsFollow() {
    if (!this.tabs.querySelector(":focus")) return;
    this.updateTabs();
    /** @type {HTMLElement|null} */ (this.tabs.querySelector("[aria-selected=true]"))?.focus();
  }

  updateTabs() {
    const { store } = this;
    reconcile(
      this.tabs,
      store.document.views ?? [],
      (view) => view.id,
      (view) =>
        el("button", {
          class: "gb-tab",
          type: "button",
          role: "tab",
          id: `gb-tab-${view.id}`,
          "aria-controls": "gb-panel",
          text: view.label,
          title: view.label,
          onclick: () => store.setView(view.id),
        }),
      (node, view) => {
        setAttribute(node, "aria-selected", String(view.id === store.view));
        setAttribute(node, "tabindex", view.id === store.view ? "0" : "-1");
      },
    );
    this.tabs.hidden = !store.document.views?.length;
  }

  updateTools() {
    const { store } = this;
    const status = statusOf(store);
    setAttribute(this.status, "data-status", status);
    setText(this.status, status);
    if (this.engines.value !== store.engine) this.engines.value = store.engine;
    this.engines.hidden = !store.live || !store.sharedOffered;
    const why = store.whyNoCommand;
    setAttribute(this.resetButton, "disabled", why ? "" : null);
    this.resetButton.title = why || RESET_TITLE;
    setAttribute(this.saveButton, "disabled", store.live && store.header ? null : "");
  }
}

/** @param {string} name @param {string} text @param {string} title @param {() => void} act */
function tool(name, text, title, act) {
  return el(
    "button",
    { class: "gb-button is-quiet", type: "button", title, "data-act": name, onclick: act },
    icon(ICONS[name]),
    text && el("span", { text }),
  );
}

function makeHelp() {
  const items = SHORTCUTS.flatMap(([keys, text]) => [
    el(
      "dt",
      {},
      .../** @type {string[]} */ (keys).map((key) =>
        key === "…" ? key : el("kbd", { text: key }),
      ),
    ),
    el("dd", { text: /** @type {string} */ (text) }),
  ]);
  return el(
    "div",
    { class: "gb-popover", role: "dialog", "aria-label": "Keyboard shortcuts", hidden: true },
    el("h3", { text: "Keyboard" }),
    el("dl", { class: "gb-keys" }, ...items),
  );
}

/** The row of the views' keys. @param {number} views */
function viewKeys(views) {
  const last = String(Math.min(views, 9));
  const keys = views < 3 ? ["1", last].slice(0, views) : ["1", "…", last];
  return [
    el("dt", {}, ...keys.map((key) => (key === "…" ? key : el("kbd", { text: key })))),
    el("dd", { text: "choose a view" }),
  ];
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
