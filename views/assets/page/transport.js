// @ts-check
/**
 * The transport: one cursor for the whole page. At the head of a live engine the forward buttons
 * command the engine; behind the head they walk through what was recorded.
 */
import { STEP_PHASES } from "../core/records.js";
import { paceText } from "../words/format.js";
import { el, icon, setAttribute, setText } from "./dom.js";
import { LanesRow } from "./lanes.js";
import { themeOf } from "./theme.js";
import { hintOf } from "./transport_hints.js";
import { setTruth } from "./truth.js";

/** @import { Store } from "../core/store.js" */

const SPEEDS = ["0.5", "1", "2", "4", "8", "16", "free"];
/** Between two ticks of the scrubber, in pixels. */
const LEAST_TICK = 9;
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
};

const WHERE_HOW = "the step at the cursor / the newest step of the log";

export class Transport {
  /**
   * @param {HTMLElement} root
   * @param {Store} store
   */
  constructor(root, store) {
    this.store = store;
    this.busy = false;
    this.face = "";
    this.ticksKey = "";
    this.ticksSize = { width: 0, height: 0 };
    this.buttons = this.makeButtons();
    this.speed = this.speedSelect();
    this.hint = el("div", { class: "gb-hint", role: "status" });
    this.cells = new Map(STEP_PHASES.map((phase) => [phase, this.phaseCell(phase)]));
    this.range = this.scrubber();
    this.ticks = /** @type {HTMLCanvasElement} */ (el("canvas", { "aria-hidden": "true" }));
    this.where = el("div", { class: "gb-where" });
    /** @type {HTMLElement|undefined} */
    this.strip = undefined;
    this.lanes = new LanesRow(store);
    root.append(this.handRow(), this.logRow(), this.lanes.element);
    this.resize = new ResizeObserver(() => {
      this.ticksSize = { width: this.ticks.clientWidth, height: this.ticks.clientHeight };
      this.drawTicks();
    });
    this.resize.observe(this.ticks);
  }

  // -- building ----------------------------------------------------------------------------------

  /** @returns {Record<string, HTMLElement>} */
  makeButtons() {
    /** @type {[string, "Event"|"Phase"|"Step", string][]} */
    const back = [
      ["stepBack", "Step", "Back to the end of the step before ([ or p)"],
      ["phaseBack", "Phase", "Back to the end of the phase before (Shift+←)"],
      ["eventBack", "Event", "Back by one event (←)"],
    ];
    /** @type {[string, "Event"|"Phase"|"Step", string][]} */
    const on = [
      ["eventOn", "Event", "On by one event (→)"],
      ["phaseOn", "Phase", "On to the end of the phase (Shift+→)"],
      ["stepOn", "Step", "On to the end of the step (] or n)"],
    ];
    const live = "To the newest record, and follow it (End)";
    const run = { class: "gb-button is-primary gb-run", type: "button", "data-act": "run" };
    /** @type {[string, HTMLElement][]} */
    const made = [
      ...back.map(([name, unit, title]) => named(name, unit, title, () => this.back(unit), true)),
      ...on.map(([name, unit, title]) => named(name, unit, title, () => this.on(unit), false)),
      named("live", "Live", live, () => this.store.goLive(), true),
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
          "aria-label": "Speed",
          title: "Steps a second, of the engine or of the recording",
          onchange: () => this.speedChanged(),
        },
        ...SPEEDS.map((value) =>
          el("option", { value, text: value === "free" ? "free" : paceText(value) }),
        ),
      )
    );
    select.value = sessionStorage.getItem(SPEED_KEY) ?? "2";
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

  /** @returns {HTMLInputElement} */
  scrubber() {
    const range = el("input", {
      type: "range",
      min: -1,
      max: 0,
      step: 1,
      value: -1,
      "aria-label": "Position in the log",
      oninput: () => this.scrubbed(),
    });
    return /** @type {HTMLInputElement} */ (range);
  }

  handRow() {
    const { stepBack, phaseBack, eventBack, run, eventOn, phaseOn, stepOn, live } = this.buttons;
    const group = (/** @type {string} */ name, /** @type {HTMLElement[]} */ ...buttons) =>
      el("div", { class: "gb-group", role: "group", "aria-label": name }, ...buttons);
    return el(
      "div",
      { class: "gb-transport-row" },
      group("Back", stepBack, phaseBack, eventBack),
      run,
      group("Forward", eventOn, phaseOn, stepOn),
      live,
      el("label", { class: "gb-speed" }, this.speed),
      this.hint,
    );
  }

  logRow() {
    const steps = Array.from(this.cells.values(), (cell) => el("li", {}, cell));
    this.strip = el("ol", { class: "gb-phases", "aria-label": "Phases of the step" }, ...steps);
    return el(
      "div",
      { class: "gb-transport-row" },
      this.strip,
      el("div", { class: "gb-scrub" }, this.ticks, this.range),
      this.where,
    );
  }

  destroy() {
    this.resize.disconnect();
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
    this.ticksKey = "";
    store.changed();
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
    try {
      sessionStorage.setItem(SPEED_KEY, this.speed.value);
    } catch {
      // The choice is not remembered, that is all.
    }
    const { store } = this;
    if (store.clock.playing) store.clock.play(this.rate);
    if (this.engineRuns && store.canCommand) void store.command("run", { rate: this.rate });
  }

  scrubbed() {
    this.store.seek(Number(this.range.value));
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
    this.lanes.update();
    this.updateStrip();
    this.updateScrubber();
    this.updateHint();
  }

  updateButtons() {
    const { store, buttons } = this;
    const start = store.cursor < 0;
    const stuck = this.commands
      ? store.whyNoCommand
      : store.atHead
        ? "This is the end of the log."
        : "";
    const wait =
      stuck || (this.commands && this.engineRuns ? "The engine runs: pause it first." : "");
    for (const name of ["stepBack", "phaseBack", "eventBack"])
      this.enable(buttons[name], !start, "");
    for (const name of ["eventOn", "phaseOn", "stepOn"])
      this.enable(buttons[name], !wait && !this.busy, wait);
    const runs = store.clock.playing || (this.engineRuns && store.following);
    const face = runs ? "pause" : "run";
    if (this.face !== face) {
      this.face = face;
      buttons.run.replaceChildren(icon(ICONS[face]), runs ? "Pause" : "Run");
    }
    const saved = !store.live;
    const dead = this.commands && !store.canCommand;
    this.enable(buttons.run, !(dead || (saved && store.head < 0)), dead ? store.whyNoCommand : "");
    buttons.run.title ||= runs ? "Pause (Space)" : "Run (Space)";
    buttons.live.hidden = saved;
    this.enable(buttons.live, !store.following, "");
    buttons.live.classList.toggle("is-quiet", store.following);
  }

  /** @param {HTMLElement} button @param {boolean} able @param {string} why */
  enable(button, able, why) {
    setAttribute(button, "disabled", able ? null : "");
    /** @type {any} */ (button).__title ??= button.title;
    const title = !able && why ? why : /** @type {any} */ (button).__title;
    if (button.title !== title) button.title = title;
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
      const title = phase === next && store.live ? `${phase}: the engine's next phase` : phase;
      if (cell.title !== title) cell.title = title;
    }
  }

  updateScrubber() {
    const { store, range } = this;
    setAttribute(range, "max", String(Math.max(store.head, 0)));
    setAttribute(range, "disabled", store.head < 0 ? "" : null);
    if (Number(range.value) !== store.cursor) range.value = String(store.cursor);
    const share = (store.cursor + 1) / Math.max(1, store.head + 1);
    range.style.setProperty("--at", `${(share * 100).toFixed(2)}%`);
    const at = store.phaseAt(store.cursor);
    const last = store.log.newestAt(store.head)?.step;
    const words = this.whereWords(at, last);
    setTruth(this.where, "measured", WHERE_HOW, words);
    setAttribute(
      range,
      "aria-valuetext",
      at ? `${words}, ${at.phase}` : "before the first record",
    );
    this.drawTicks();
  }

  /** @param {any} at @param {number|undefined} last */
  whereWords(at, last) {
    if (!at) return this.store.head < 0 ? "no step yet" : "start";
    if (at.entry.command) {
      const before = this.store.stepAt(at.entry.first - 1);
      return before ? `after step ${before.step} / ${last}` : "before the first step";
    }
    return `step ${at.entry.step} / ${last}`;
  }

  /** Step boundaries as ticks, commands as dots. */
  drawTicks() {
    const { store, ticks } = this;
    const { width, height } = this.ticksSize;
    const ratio = devicePixelRatio || 1;
    const where = `${width} ${height} ${ratio} ${themeOf(ticks)}`;
    const key = `${store.header?.trace_id} ${store.head} ${where}`;
    if (key === this.ticksKey) return;
    this.ticksKey = key;
    ticks.width = width * ratio;
    ticks.height = height * ratio;
    const pen = ticks.getContext("2d");
    if (!pen || store.head < 0) return;
    pen.scale(ratio, ratio);
    const style = getComputedStyle(ticks);
    const plain = style.getPropertyValue("--gb-faint");
    const command = style.getPropertyValue("--gb-accent");
    const thumb = 7;
    const room = (width - 2 * thumb) / (store.head + 1);
    const every = tickStride(store.steps.length, width);
    let before = -10;
    for (const entry of store.steps) {
      if (!entry.command && entry.step % every) continue;
      const x = thumb + (entry.first + 1) * room;
      if (x - before < 3) continue;
      before = x;
      pen.fillStyle = entry.command ? command : plain;
      if (entry.command) pen.fillRect(x - 1.5, height - 5, 3, 3);
      else pen.fillRect(x - 0.5, height - 7, 1, 6);
    }
  }

  updateHint() {
    const { kind, text } = hintOf(this.store);
    const how = this.store.header ? "counted in the log of the engine" : "what the server reports";
    setText(this.hint, text);
    setAttribute(this.hint, "data-kind", kind || null);
    setAttribute(this.hint, "title", /\d/.test(text) ? `measured: ${how}` : null);
  }
}

/** @param {number} steps @param {number} width @returns {number} a tick every so many steps */
function tickStride(steps, width) {
  let stride = 1;
  for (let i = 0; (steps / stride) * LEAST_TICK > width; i += 1) stride *= i % 3 === 1 ? 2.5 : 2;
  return stride;
}

/** What it does, for those who do not see its arrow. @param {-1|1} way @param {string} unit */
function oneWords(way, unit) {
  return `${way < 0 ? "Back" : "Forward"} one ${unit.toLowerCase()}`;
}

/**
 * A button with its name in `buttons`.
 * @param {string} name @param {string} text @param {string} title @param {() => void} act
 * @param {boolean} first whether the icon stands before the text
 * @returns {[string, HTMLElement]}
 */
function named(name, text, title, act, first) {
  const attributes = { class: "gb-button", type: "button", title, "data-act": name, onclick: act };
  const parts = [icon(ICONS[name]), text];
  return [name, el("button", attributes, ...(first ? parts : parts.reverse()))];
}
