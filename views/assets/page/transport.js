// @ts-check
/**
 * The transport: one cursor for the whole page. At the head of a live engine the forward buttons
 * command the engine; behind the head they walk through what was recorded.
 */
import { STEP_PHASES } from "../core/records.js";
import { keepText, recallText } from "../core/tab_memory.js";
import { PHONE } from "../map/foot.js";
import { busyText } from "../words/doing.js";
import { paceText } from "../words/format.js";
import { happenedText, hintOf } from "../words/hints.js";
import { TRANSPORT, oneWords, phaseTitle, whereText } from "../words/transport.js";
import { BookmarkMenu } from "./bookmark_menu.js";
import { el, icon, setAttribute, setText } from "./dom.js";
import { Jump } from "./jump.js";
import { LanesRow } from "./lanes.js";
import { Pace } from "./pace.js";
import { Scrubber } from "./scrubber.js";
import { setTruth } from "./truth.js";

/** @import { Store } from "../core/store.js" */

const SPEEDS = ["0.5", "1", "2", "4", "8", "16", "30", "60", "free"];
const SPEED_KEY = "glassbox.speed";

/** @type {Record<string, string>} paths in a square of 16 */
const ICONS = {
  stepBack: "M2 3h2v10H2zM9 3v10L4.5 8zM14 3v10L9.5 8z",
  phaseBack: "M3 3h2v10H3zM13 3v10L6 8z",
  eventBack: "M10.5 3 12 4.5 8.5 8l3.5 3.5-1.5 1.5-5-5z",
  run: "M4 2.5 13.5 8 4 13.5z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z",
  eventOn: "M5.5 3 4 4.5 7.5 8 4 11.5 5.5 13l5-5z",
  phaseOn: "M11 3h2v10h-2zM3 3v10l7-5z",
  stepOn: "M12 3h2v10h-2zM7 3v10l4.5-5zM2 3v10l4.5-5z",
  live: "M8 4a4 4 0 1 0 0 8 4 4 0 0 0 0-8z",
  more: "M3 10.5 8 5.5l5 5-1.4 1.4L8 8.3l-3.6 3.6z",
};

export class Transport {
  /**
   * @param {HTMLElement} root
   * @param {Store} store
   */
  constructor(root, store) {
    this.store = store;
    this.busy = false;
    this.face = "";
    this.buttons = this.makeButtons();
    this.speed = this.speedSelect();
    this.hint = el("div", { class: "gb-hint", role: "status" });
    this.cells = new Map(STEP_PHASES.map((phase) => [phase, this.phaseCell(phase)]));
    this.scrubber = new Scrubber(store);
    this.jump = new Jump(store);
    this.bookmarks = new BookmarkMenu(store);
    this.where = el("div", { class: "gb-where" });
    /** @type {HTMLElement|undefined} */
    this.strip = undefined;
    this.lanes = new LanesRow(store);
    this.root = root;
    this.more = this.moreButton();
    this.pace = new Pace(store, () => this.draw());
    root.append(this.handRow(), this.logRow(), this.lanes.element);
    /** Whether the page is a phone's, where the sentence of the view is far below the map. */
    this.narrow = false;
    this.sizes = new ResizeObserver(([{ contentRect }]) => this.resized(contentRect.width));
    this.sizes.observe(root);
  }

  // -- building ----------------------------------------------------------------------------------

  /** @returns {Record<string, HTMLElement>} */
  makeButtons() {
    /** @type {[string, "Event"|"Phase"|"Step"][]} */
    const back = [
      ["stepBack", "Step"],
      ["phaseBack", "Phase"],
      ["eventBack", "Event"],
    ];
    /** @type {[string, "Event"|"Phase"|"Step"][]} */
    const on = [
      ["eventOn", "Event"],
      ["phaseOn", "Phase"],
      ["stepOn", "Step"],
    ];
    const run = { class: "gb-button is-primary gb-run", type: "button", "data-act": "run" };
    /** @type {[string, HTMLElement][]} */
    const made = [
      ...back.map(([name, unit]) => named(name, unit, () => this.back(unit), true)),
      ...on.map(([name, unit]) => named(name, unit, () => this.on(unit), false)),
      named("live", "Live", () => this.toLive(), true),
      ["run", el("button", { ...run, onclick: () => this.toggleRun() })],
    ];
    const buttons = Object.fromEntries(made);
    for (const [name, unit] of back) setAttribute(buttons[name], "aria-label", oneWords(-1, unit));
    for (const [name, unit] of on) setAttribute(buttons[name], "aria-label", oneWords(1, unit));
    return buttons;
  }

  /** @returns {HTMLSelectElement} */
  speedSelect() {
    const select = /** @type {HTMLSelectElement} */ (
      el(
        "select",
        {
          class: "gb-select",
          "aria-label": TRANSPORT.speed,
          title: TRANSPORT.speedTitle,
          onchange: () => this.speedChanged(),
        },
        ...SPEEDS.map((value) =>
          el("option", { value, text: value === "free" ? "free" : paceText(value) }),
        ),
      )
    );
    select.value = recallText(SPEED_KEY) ?? "2";
    return select;
  }

  /** @param {string} phase */
  phaseCell(phase) {
    return el("button", {
      class: "gb-phase",
      type: "button",
      "data-phase": phase,
      text: phase,
      onclick: () => this.toPhase(phase),
    });
  }

  /** Brings what a narrow page keeps folded into sight. */
  moreButton() {
    const button = el(
      "button",
      {
        class: "gb-button gb-more",
        type: "button",
        "data-act": "more",
        title: TRANSPORT.moreTitle,
        "aria-label": TRANSPORT.more,
        "aria-expanded": "false",
        onclick: () => {
          const open = this.root.classList.toggle("has-more");
          setAttribute(button, "aria-expanded", String(open));
        },
      },
      icon(ICONS.more),
    );
    return button;
  }

  handRow() {
    const { stepBack, phaseBack, eventBack, run, eventOn, phaseOn, stepOn, live } = this.buttons;
    const group = (/** @type {string} */ name, /** @type {HTMLElement[]} */ ...buttons) =>
      el("div", { class: "gb-group", role: "group", "aria-label": name }, ...buttons);
    return el(
      "div",
      { class: "gb-transport-row" },
      group(TRANSPORT.back, stepBack, phaseBack, eventBack),
      run,
      group(TRANSPORT.forward, eventOn, phaseOn, stepOn),
      live,
      el("label", { class: "gb-speed" }, this.speed),
      this.hint,
    );
  }

  logRow() {
    const steps = Array.from(this.cells.values(), (cell) => el("li", {}, cell));
    this.strip = el("ol", { class: "gb-phases", "aria-label": TRANSPORT.phases }, ...steps);
    return el(
      "div",
      { class: "gb-transport-row" },
      this.strip,
      this.scrubber.element,
      this.jump.element,
      this.where,
      this.more,
      this.bookmarks.element,
    );
  }

  /** @param {number} width of the transport */
  resized(width) {
    const narrow = width > 0 && width <= PHONE;
    if (this.narrow === narrow) return;
    this.narrow = narrow;
    this.updateHint();
  }

  destroy() {
    this.sizes.disconnect();
    this.pace.stop();
    this.scrubber.destroy();
    this.bookmarks.destroy();
    this.lanes.destroy();
  }

  // -- hands -------------------------------------------------------------------------------------

  /** Whether forward means the engine: at the head of an engine that this page may command. */
  get commands() {
    return this.store.live && (this.store.atHead || this.store.following);
  }

  /** @returns {number|null} steps a second; null: free */
  get rate() {
    return this.speed.value === "free" ? null : Number(this.speed.value);
  }

  get engineRuns() {
    return this.store.live && this.store.headEngine.mode === "running";
  }

  /** @param {"Event"|"Phase"|"Step"} unit */
  back(unit) {
    const { store } = this;
    store.seek(store[`previous${unit}`](store.cursor));
    store.following = false;
    store.remember();
  }

  /** @param {"Event"|"Phase"|"Step"} unit */
  on(unit) {
    const { store } = this;
    if (!this.commands) store.seek(store[`next${unit}`](store.cursor));
    else void this.commandOnce(unit);
  }

  /** @param {"Event"|"Phase"|"Step"} unit */
  async commandOnce(unit) {
    const { store } = this;
    if (this.busy) return;
    this.busy = true;
    store.following = true;
    if (unit === "Event") await store.commandOneEvent();
    else await store.command(unit.toLowerCase(), { check: store.checksPhases });
    this.busy = false;
    this.face = "";
    store.changed();
  }

  toLive() {
    if (this.store.live) this.store.goLive();
    else this.store.backToLive();
  }

  toggleRun() {
    const { store } = this;
    if (store.clock.playing) store.stopPlaying();
    else if (this.engineRuns && store.following) void store.command("pause");
    else if (this.commands) void this.runEngine();
    else store.play(this.rate);
  }

  async runEngine() {
    this.store.following = true;
    await this.store.command("run", { rate: this.rate });
  }

  speedChanged() {
    keepText(SPEED_KEY, this.speed.value);
    const { store } = this;
    if (store.clock.playing) store.clock.play(this.rate);
    if (this.engineRuns && store.canCommand) void store.command("run", { rate: this.rate });
  }

  /** @param {string} phase */
  toPhase(phase) {
    const entry = this.store.stepAt(this.store.cursor);
    const span = entry?.phases.find((each) => each.phase === phase);
    if (span) this.store.seek(span.last);
  }

  /**
   * @param {string} key @param {boolean} shift
   * @returns {boolean} whether the key was one of the transport's
   */
  key(key, shift) {
    const { store } = this;
    if (key === " ") this.toggleRun();
    else if (key === "ArrowRight") this.on(shift ? "Phase" : "Event");
    else if (key === "ArrowLeft") this.back(shift ? "Phase" : "Event");
    else if (key === "n" || key === "]") this.on("Step");
    else if (key === "p" || key === "[") this.back("Step");
    else if (key === "j" || key === "J") this.jump.go(shift ? -1 : 1);
    else if (key === "b") this.bookmarks.toggle();
    else if (key === "Home") this.toStart();
    else if (key === "End") store.goLive();
    else return false;
    return true;
  }

  toStart() {
    this.store.seek(-1);
    this.store.following = false;
  }

  // -- updating ----------------------------------------------------------------------------------

  update() {
    this.updateButtons();
    this.pace.update();
  }

  draw() {
    this.lanes.update();
    this.updateStrip();
    this.jump.update();
    this.bookmarks.update();
    this.updateWhere();
    this.updateHint();
  }

  updateButtons() {
    const { store, buttons } = this;
    const start = store.cursor < 0;
    const stuck = this.commands
      ? store.whyNoCommand
      : store.atHead
        ? TRANSPORT.endOfLog
        : "";
    const wait = stuck || (this.commands && this.engineRuns ? TRANSPORT.runs : "");
    const why = wait || (this.busy ? busyText(store.doing) : "");
    for (const name of ["stepBack", "phaseBack", "eventBack"])
      this.enable(buttons[name], !start, "");
    for (const name of ["eventOn", "phaseOn", "stepOn"])
      this.enable(buttons[name], !why, why);
    const runs = store.clock.playing || (this.engineRuns && store.following);
    const face = runs ? "pause" : "run";
    if (this.face !== face) {
      this.face = face;
      buttons.run.replaceChildren(icon(ICONS[face]), runs ? "Pause" : "Run");
    }
    const saved = !store.live;
    const dead = this.commands && !store.canCommand;
    const able = !(dead || (saved && store.head < 0));
    const act = runs ? TRANSPORT.pause : TRANSPORT.run;
    this.enable(buttons.run, able, (dead && store.whyNoCommand) || act, act);
    if (saved) this.enable(buttons.live, true, "", TRANSPORT.leaveTrace);
    else this.enable(buttons.live, !store.following, "");
    buttons.live.classList.toggle("is-quiet", !saved && store.following);
  }

  /**
   * @param {HTMLElement} button @param {boolean} able @param {string} why not
   * @param {string} [title] what it does now, where that is not always the same
   */
  enable(button, able, why, title) {
    setAttribute(button, "disabled", able ? null : "");
    /** @type {any} */ (button).__title ??= button.title;
    const act = title ?? /** @type {any} */ (button).__title;
    setAttribute(button, "title", !able && why ? why : act);
  }

  updateStrip() {
    const { store } = this;
    if (this.strip) this.strip.hidden = this.lanes.open;
    if (this.lanes.open) return;
    const at = store.phaseOnShow();
    const next = store.headEngine.next_phase;
    for (const [phase, cell] of this.cells) {
      const span = at?.entry.phases.find((each) => each.phase === phase);
      const begun = span !== undefined && span.first <= store.cursor;
      const now = at?.phase === phase;
      cell.classList.toggle("is-done", begun && !now);
      cell.classList.toggle("is-now", now);
      cell.classList.toggle(
        "is-next",
        store.live && store.atHead && phase === next && !this.engineRuns,
      );
      setAttribute(cell, "aria-current", now ? "step" : null);
      setAttribute(cell, "disabled", span ? null : "");
      const title = phaseTitle(phase, phase === next && store.live);
      if (cell.title !== title) cell.title = title;
    }
  }

  updateWhere() {
    const { store } = this;
    const at = store.phaseAt(store.cursor);
    const before = at?.entry.command ? store.stepAt(at.entry.first - 1)?.step : undefined;
    const last = store.log.newestAt(store.head)?.step;
    const words = whereText(at?.entry ?? null, last, before, store.head < 0);
    setTruth(this.where, "measured", TRANSPORT.whereHow, words);
    this.scrubber.kind = this.jump.kind;
    this.scrubber.update(at ? `${words}, ${at.phase}` : TRANSPORT.start);
  }

  updateHint() {
    const { kind, text } = hintOf(this.store);
    // Announced where the cursor comes to rest: it is no status of its own.
    const happened = this.narrow && !kind ? happenedText(this.store) : "";
    const how = this.store.header ? TRANSPORT.counted : TRANSPORT.reported;
    setText(this.hint, happened || text);
    setAttribute(this.hint, "data-kind", kind || null);
    setAttribute(this.hint, "role", happened ? null : "status");
    setAttribute(this.hint, "title", /\d/.test(text) ? `measured: ${how}` : null);
  }
}

/**
 * A button with its name in `buttons`.
 * @param {string} name @param {string} text @param {() => void} act
 * @param {boolean} first whether the icon stands before the text
 * @returns {[string, HTMLElement]}
 */
function named(name, text, act, first) {
  const title = TRANSPORT[/** @type {keyof typeof TRANSPORT} */ (name)];
  const attributes = { class: "gb-button", type: "button", title, "data-act": name, onclick: act };
  const parts = [icon(ICONS[name]), text];
  return [name, el("button", attributes, ...(first ? parts : parts.reverse()))];
}
