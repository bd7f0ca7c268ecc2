// @ts-check
/** The column beside the map: the inspector, behind it code, log, rules and claims. */
import { BESIDE, TABS } from "../words/side.js";
import { ASKS_FOR_CLAIMS } from "./claim_marks.js";
import { Claims } from "./claims.js";
import { Console } from "./console.js";
import { el, setAttribute } from "./dom.js";
import { Inspector } from "./inspector.js";
import { ASKS_FOR_CODE, CodePane } from "./inspector_code.js";
import { Rules } from "./rules.js";
import { SideWidth } from "./side_width.js";

/** @import { Store } from "../core/store.js" */

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
      { class: "gb-side-tabs", role: "tablist", "aria-label": BESIDE },
      ...this.tabs,
    );
    bar.addEventListener("keydown", (event) => this.pressed(event));
    this.width = new SideWidth(root);
    const top = el("div", { class: "gb-side-top" }, bar, this.width.button);
    root.append(top, ...this.panes);
    this.inspector = new Inspector(this.panes[0], store);
    this.code = new CodePane(this.panes[1], store);
    this.console = new Console(this.panes[2], store);
    this.rules = new Rules(this.panes[3], store);
    this.claims = new Claims(this.panes[4], store);
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
    this.code.show(id === "code");
    this.width.show(id);
    this.store.changed();
  }

  /** What a link names; what it selects does not come before it. @param {string} id */
  showLinked(id, claims = /** @type {number[]} */ ([])) {
    this.selection = this.store.selection;
    this.show(id);
    if (id === "claims") this.claims.ask(claims.length ? this.claims.askedFor(claims) : null);
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    const at = TABS.findIndex(([id]) => id === this.shown);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: TABS.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = (to + TABS.length) % TABS.length;
    this.show(TABS[next][0]);
    this.tabs[next].focus();
  }

  update() {
    const { selection } = this.store;
    if (selection !== this.selection) {
      this.selection = selection;
      // What was selected on the map or in a panel is to be read, not to be looked for. The code
      // follows the selection itself.
      const some = Object.values(selection).some((each) => each !== null);
      if (some && this.shown !== "code") this.show("inspector");
    }
    setAttribute(this.tabs[3], "data-state", this.rules.state);
    if (this.shown === "code") this.code.update();
    else if (this.shown === "log") this.console.update();
    else if (this.shown === "rules") this.rules.update();
    else if (this.shown === "claims") this.claims.update();
    else this.inspector.update();
  }

  /** Show what a mark, or a link to the code, asks for. @param {HTMLElement} page where they are */
  answerMarks(page) {
    page.addEventListener(ASKS_FOR_CODE, () => {
      this.show("code");
      this.tabs[1].focus({ preventScroll: true });
    });
    page.addEventListener(ASKS_FOR_CLAIMS, (event) => {
      this.show("claims");
      this.claims.ask(/** @type {CustomEvent} */ (event).detail);
      this.tabs[4].focus({ preventScroll: true });
      this.tabs[4].scrollIntoView({ block: "nearest" });
    });
  }

  /** The box of a line, without leaving the lines. @param {string} live the engine's name of it */
  select(live) {
    const item = this.store.document.components.find((each) => each.live === live);
    this.store.select({ component: item?.id ?? null, request: null, block: null });
    this.selection = this.store.selection;
  }
}
