// @ts-check
/**
 * The row above the map: the tabs of the views, whose engine is shown, and what can be done with
 * its log.
 */
import { keepText, recallText } from "../core/tab_memory.js";
import { MAX_FILE, tooLarge } from "../core/trace_file.js";
import { messageOf } from "../words/format.js";
import { CHOOSE_VIEW, HEAD, SHORTCUTS } from "../words/head.js";
import { OPEN } from "../words/open.js";
import { LINK } from "../words/reach.js";
import { el, icon, reconcile, setAttribute, setText } from "./dom.js";
import { MomentTools, isMoment } from "./moment.js";
import { OpenMenu } from "./open_menu.js";
import { SaveMenu } from "./save_menu.js";

/** @import { Store } from "../core/store.js" */
/** @import { Address } from "./address.js" */

const KEYS_KEY = "glassbox.keys";

/** @type {Record<string, string>} paths in a square of 16 */
const ICONS = {
  link:
    "M6.5 9.5a.9.9 0 0 0 1.3 0l3.9-3.9a1.4 1.4 0 0 0-2-2L8.4 4.9 7.1 3.6 8.4 2.3a3.2 3.2 0 0 1 " +
    "4.6 4.6L9.1 10.8a2.7 2.7 0 0 1-3.9 0zm3-3a.9.9 0 0 0-1.3 0l-3.9 3.9a1.4 1.4 0 0 0 2 2l1.3" +
    "-1.3 1.3 1.3-1.3 1.3A3.2 3.2 0 0 1 3 9.1l3.9-3.9a2.7 2.7 0 0 1 3.9 0z",
  reset: "M8 3a5 5 0 1 1-4.6 3H1.6L4.2 3l2.6 3H5a3.4 3.4 0 1 0 3-1.4z",
  help:
    "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zm-.8 9.4h1.6v1.6H7.2zm.8-7.5c1.6 0 2.8 1 " +
    "2.8 2.4 0 1.2-.7 1.7-1.3 2.1-.5.4-.7.6-.7 1.2v.6H7.2v-.7c0-1.3.7-1.8 1.3-2.2.5-.4.7-.5" +
    ".7-1 0-.5-.5-.9-1.2-.9s-1.3.5-1.3 1.2H5.1c0-1.6 1.2-2.7 2.9-2.7z",
};

/** Kinds of which the reader has said all: what is wrong, and where. */
const UNNAMED = new Set(["trace", "json", "text"]);

export class Head {
  /**
   * @param {HTMLElement} root
   * @param {Store} store
   * @param {Address} address
   */
  constructor(root, store, address) {
    this.store = store;
    this.address = address;
    this.problem = ""; // why a file could not be opened
    /** What can be done with it instead. @type {[string, () => void]|null} */
    this.instead = null;
    /** Asks for a document to be drawn. @type {((name: string, text: string) => void)|undefined} */
    this.openDocument = undefined;
    this.tabs = el("div", { class: "gb-tabs", role: "tablist", "aria-label": HEAD.views });
    this.tabs.addEventListener("keydown", (event) => this.tabPressed(event));
    this.status = el("span", { class: "gb-status" });
    this.engines = this.engineSelect();
    this.file = this.fileInput();
    this.moment = new MomentTools(store);
    this.saveMenu = new SaveMenu(store, this.moment);
    this.openMenu = new OpenMenu(store, () => this.file.click());
    this.linkButton = tool("link", "", LINK.title, () => void this.copyLink());
    this.linkButton.setAttribute("aria-label", LINK.name);
    this.resetButton = tool("reset", HEAD.reset, HEAD.resetTitle, () => void this.reset());
    this.helpButton = tool("help", "", HEAD.keysTitle, () => this.toggleHelp());
    this.helpButton.setAttribute("aria-label", HEAD.keysTitle);
    this.helpButton.setAttribute("aria-expanded", "false");
    this.keySwitch = this.makeKeySwitch();
    this.help = makeHelp(this.keySwitch);
    /** @type {HTMLElement[]} the row of the views' keys in the help */
    this.viewKeys = [];
    const tools = [
      this.status,
      this.engines,
      this.saveMenu.element,
      this.openMenu.element,
      this.file,
      this.linkButton,
      this.resetButton,
      this.moment.back,
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

  destroy() {
    this.saveMenu.destroy();
    this.openMenu.destroy();
  }

  /** @returns {HTMLSelectElement} */
  engineSelect() {
    const select = el(
      "select",
      {
        class: "gb-select",
        "aria-label": HEAD.engine,
        title: HEAD.engineTitle,
        onchange: () => this.chooseEngine(),
      },
      el("option", { value: "own", text: HEAD.own }),
      el("option", { value: "shared", text: HEAD.shared }),
    );
    return /** @type {HTMLSelectElement} */ (select);
  }

  /** @returns {HTMLInputElement} */
  fileInput() {
    const input = el("input", {
      type: "file",
      accept: ".jsonl,.safetensors,.json,application/jsonl,text/plain",
      class: "gb-hidden",
      tabindex: "-1",
      "aria-label": HEAD.file,
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

  /** Whoever speaks to the page, or often hits a key, may do without. */
  makeKeySwitch() {
    const box = /** @type {HTMLInputElement} */ (
      el("input", {
        type: "checkbox",
        onchange: () => keepText(KEYS_KEY, box.checked ? "" : "off"),
      })
    );
    box.checked = recallText(KEYS_KEY) !== "off";
    return box;
  }

  /** Whether a key that types something is a command all the same. */
  get takesLetters() {
    return this.keySwitch.checked;
  }

  /** @param {boolean} [open] */
  toggleHelp(open = this.help.hidden !== false) {
    const views = this.store.document?.views?.length ?? 0;
    if (open) {
      for (const node of this.viewKeys) node.remove();
      this.viewKeys = views ? viewKeys(views) : [];
      this.help.querySelector("dl")?.append(...this.viewKeys);
    }
    const within = this.help.matches(":focus-within");
    this.help.hidden = !open;
    this.helpButton.setAttribute("aria-expanded", String(open));
    if (open) this.help.focus({ preventScroll: true });
    else if (within) this.helpButton.focus({ preventScroll: true });
  }

  chooseEngine() {
    this.store.link?.choose(/** @type {"own"|"shared"} */ (this.engines.value));
  }

  async copyLink() {
    const { store } = this;
    const { link } = this.address;
    try {
      await navigator.clipboard.writeText(link);
      const file = store.live || store.savedPath ? "" : LINK.savedLog(store.traceName);
      store.tell("info", LINK.copied + (store.live ? LINK.liveLog : file));
    } catch {
      prompt(LINK.byHand, link); // an address that is not this machine's and not https
    }
  }

  async openFile() {
    const file = this.file.files?.[0];
    this.file.value = "";
    if (!file) return;
    this.problem = "";
    this.instead = null;
    if (isMoment(file.name)) return this.openMoment(file);
    try {
      if (file.size > MAX_FILE) throw new Error(tooLarge());
      this.store.openTrace(await file.text(), file.name, false, file);
    } catch (error) {
      await this.refuse(file, messageOf(error));
    }
    this.store.changed();
  }

  /** @param {File} file */
  openMoment(file) {
    return this.moment.restore(file, (problem) => (this.problem = problem));
  }

  /** Say what the file is where it is no trace at all. @param {File} file @param {string} why */
  async refuse(file, why) {
    this.problem = HEAD.refused(file.name, why);
    let kind;
    try {
      kind = await this.store.link?.kindOf(file);
    } catch {
      return; // the server is away: the line and what is wrong there have to do
    }
    if (!kind || UNNAMED.has(kind.name)) return;
    if (kind.name === "moment") {
      this.problem = "";
      await this.openMoment(file);
      return;
    }
    this.problem = OPEN.other(file.name, kind);
    const open = this.openDocument;
    if (kind.name !== "document" || !open) return;
    this.instead = [OPEN.asDocument, () => void this.drawDocument(file, open)];
  }

  /** @param {File} file @param {(name: string, text: string) => void} open */
  async drawDocument(file, open) {
    open(file.name, await file.text());
    this.problem = "";
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
    this.resetButton.title = why || HEAD.resetTitle;
    this.saveMenu.update();
    this.moment.update();
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

/** @param {HTMLInputElement} keySwitch */
function makeHelp(keySwitch) {
  const items = SHORTCUTS.flatMap(([keys, text]) => [
    el("dt", {}, ...keys.map((key) => el("kbd", { text: key }))),
    el("dd", { text }),
  ]);
  return el(
    "div",
    {
      class: "gb-popover",
      role: "dialog",
      "aria-label": HEAD.keysTitle,
      tabindex: "-1",
      hidden: true,
    },
    el("h2", { text: HEAD.keys }),
    el("dl", { class: "gb-keys" }, ...items),
    el("label", { class: "gb-keys-on" }, keySwitch, HEAD.keysOn),
  );
}

/** The row of the views' keys. @param {number} views */
function viewKeys(views) {
  const last = String(Math.min(views, 9));
  const keys = views < 3 ? ["1", last].slice(0, views) : ["1", "…", last];
  return [
    el("dt", {}, ...keys.map((key) => (key === "…" ? key : el("kbd", { text: key })))),
    el("dd", { text: CHOOSE_VIEW }),
  ];
}

/** @param {Store} store */
function statusOf(store) {
  if (!store.live) return "saved trace";
  if (store.connection === "lost") return "lost";
  if (store.connection !== "open") return "connecting";
  if (!store.header) return store.modelStatus?.stage === "failed" ? "no model" : "loading";
  if (store.failure) return "failed";
  return store.headEngine.mode === "running" ? "running" : "paused";
}
