// @ts-check
/** The column beside the map: the inspector, behind it the console's lines and the monitor. */
import { Console } from "./console.js";
import { el, setAttribute } from "./dom.js";
import { Inspector } from "./inspector.js";
import { Rules } from "./rules.js";

/** @import { Store } from "../core/store.js" */

/** @type {[string, string, string][]} */
const TABS = [
  ["inspector", "Inspector", "What is selected, and how it stands at the cursor"],
  ["log", "Log", "What vLLM's console would print of this engine"],
  ["rules", "Rules", "Whether the engine's books agree: checked when you ask for it"],
];

export class Side {
  /**
   * @param {HTMLElement} root
   * @param {Store} store
   */
  constructor(root, store) {
    this.store = store;
    this.tabs = TABS.map(([id, text, title]) => this.makeTab(id, text, title));
    this.panes = TABS.map(([id]) =>
      el("div", {
        class: "gb-side-pane",
        id: `gb-side-${id}`,
        role: "tabpanel",
        "aria-labelledby": `gb-side-tab-${id}`,
      }),
    );
    const bar = el(
      "div",
      { class: "gb-side-tabs", role: "tablist", "aria-label": "Beside the map" },
      ...this.tabs,
    );
    bar.addEventListener("keydown", (event) => this.pressed(event));
    root.append(bar, ...this.panes);
    this.inspector = new Inspector(this.panes[0], store);
    this.console = new Console(this.panes[1], store);
    this.rules = new Rules(this.panes[2], store);
    this.console.onPick = (component) => this.select(component);
    this.selection = store.selection;
    this.show("inspector");
  }

  /** @param {string} id @param {string} text @param {string} title */
  makeTab(id, text, title) {
    return el("button", {
      class: "gb-side-tab",
      type: "button",
      role: "tab",
      id: `gb-side-tab-${id}`,
      "aria-controls": `gb-side-${id}`,
      title,
      text,
      onclick: () => this.show(id),
    });
  }

  /** @param {string} id */
  show(id) {
    this.shown = id;
    for (const [i, [each]] of TABS.entries()) {
      setAttribute(this.tabs[i], "aria-selected", String(each === id));
      setAttribute(this.tabs[i], "tabindex", each === id ? "0" : "-1");
      this.panes[i].hidden = each !== id;
    }
    if (id === "log") this.console.open();
    this.store.changed();
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
    event.preventDefault();
    const at = TABS.findIndex(([id]) => id === this.shown);
    const to = (at + (event.key === "ArrowRight" ? 1 : -1) + TABS.length) % TABS.length;
    this.show(TABS[to][0]);
    this.tabs[to].focus();
  }

  update() {
    const { selection } = this.store;
    if (selection !== this.selection) {
      this.selection = selection;
      // What was selected on the map or in a panel is to be read, not to be looked for.
      if (Object.values(selection).some((each) => each !== null)) this.show("inspector");
    }
    setAttribute(this.tabs[2], "data-state", this.rules.state);
    if (this.shown === "log") this.console.update();
    else if (this.shown === "rules") this.rules.update();
    else this.inspector.update();
  }

  /** The box of a line, without leaving the lines. @param {string} live the engine's name of it */
  select(live) {
    const item = this.store.document.components.find((each) => each.live === live);
    this.store.select({ component: item?.id ?? null, request: null, block: null });
    this.selection = this.store.selection;
  }
}
