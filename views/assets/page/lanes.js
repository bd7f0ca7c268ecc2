// @ts-check
/**
 * Below the slider, where steps overlap: what both threads do at the cursor, what is in flight and
 * which tokens are not known yet. Without asynchronous scheduling there is nothing of it.
 */
import { LANES, lanesAt, runsAtOnce } from "../core/lanes.js";
import { keepText, recallText } from "../core/tab_memory.js";
import { Twin, redrawOnChange } from "../panels/parts.js";
import { requestColour } from "../words/colours.js";
import { micros, percent } from "../words/format.js";
import {
  BOTH_HOW,
  THREADS,
  UNKNOWN_HOW,
  droppedWords,
  lanesSentence,
} from "../words/lanes.js";
import { el, icon, reconcile, setAttribute, setText } from "./dom.js";
import { LanesCanvas } from "./lanes_canvas.js";
import { themeOf } from "./theme.js";
import { setTruth } from "./truth.js";

/** @import { Lanes } from "../core/lanes.js" */
/** @import { Lane } from "../core/records.js" */
/** @import { Store } from "../core/store.js" */

const FOLDED_KEY = "glassbox.lanes";
const MOST_CHIPS = 6;
const LEAST_ZOOM = 1 / 4;
const MOST_ZOOM = 256;
const CHEVRON = "M3 5.5 8 10.5l5-5 1.2 1.2L8 13 1.8 6.7z";

/** @typedef {{key: string, text: string, how: string, tone: string, request?: string}} Chip */

export class LanesRow {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.folded = recallText(FOLDED_KEY) === "folded";
    this.canvas = new LanesCanvas(store);
    /** @type {Map<string, HTMLElement>} by phase */
    this.cells = new Map();
    this.both = el("b");
    this.times = el("small");
    this.grid = el("small");
    this.wider = this.zoomButton("−", THREADS.wider, 0.5);
    this.closer = this.zoomButton("+", THREADS.closer, 2);
    this.wide = el("div", { class: "gb-lanes-time" }, this.canvas.plane.canvas);
    this.twin = new Twin(THREADS.name, THREADS.columns, () =>
      this.canvas.drawn.map(({ run }) => [
        run.lane,
        run.phase,
        String(run.step),
        micros(run.end - run.start),
      ]),
    );
    this.words = el("span");
    this.chips = el("span", { class: "gb-lanes-chips" });
    this.fold = el(
      "button",
      { class: "gb-button is-quiet gb-lanes-fold", type: "button", onclick: () => this.toggle() },
      icon(CHEVRON),
    );
    this.body = el(
      "div",
      { class: "gb-lanes-body" },
      el("div", { class: "gb-lanes-strips" }, this.strip("engine"), this.strip("executor")),
      this.wide,
      this.twin.element,
      el(
        "div",
        { class: "gb-lanes-both" },
        this.both,
        this.times,
        el("span", { class: "gb-lanes-zoom" }, this.grid, this.wider, this.closer),
      ),
    );
    const words = el("p", { class: "gb-lanes-words" }, this.words, this.chips);
    const line = el("div", { class: "gb-lanes-line" }, words, this.fold);
    this.element = el("div", { class: "gb-lanes", hidden: true }, this.body, line);
    this.redraw = redrawOnChange(this.element, () => this.update(), [this.wide]);
  }

  /** @param {Lane} lane */
  strip(lane) {
    const cells = LANES[lane].map((phase) => {
      const cell = el(
        "button",
        { class: "gb-phase", type: "button", "data-phase": phase, onclick: () => this.goTo(phase) },
        phase,
        el("small"),
      );
      this.cells.set(phase, cell);
      return el("li", {}, cell);
    });
    return el(
      "div",
      { class: "gb-lane", "data-lane": lane },
      el("span", { class: "gb-lane-name", text: lane }),
      el("ol", { class: "gb-phases", "aria-label": THREADS.phases(lane) }, ...cells),
    );
  }

  /** Whether it shows the phases, so that nobody else has to. */
  get open() {
    return this.store.overlaps && !this.folded;
  }

  destroy() {
    this.redraw.destroy();
    this.twin.destroy();
  }

  toggle() {
    this.folded = !this.folded;
    keepText(FOLDED_KEY, this.folded ? "folded" : "");
    this.store.changed();
  }

  /** @param {string} text @param {string} title @param {number} factor */
  zoomButton(text, title, factor) {
    const onclick = () => {
      this.canvas.zoom *= factor;
      this.store.changed();
    };
    return el("button", { type: "button", title, "aria-label": title, text, onclick });
  }

  /** @param {string} phase */
  goTo(phase) {
    const run = lanesAt(this.store)?.last.get(phase);
    if (run) this.store.seek(run.i);
  }

  update() {
    const lanes = lanesAt(this.store);
    this.element.hidden = lanes === null;
    if (!lanes) return;
    this.body.hidden = this.folded;
    setAttribute(this.fold, "aria-expanded", String(!this.folded));
    setAttribute(this.fold, "aria-label", this.folded ? THREADS.show : THREADS.fold);
    this.fold.title = this.folded ? THREADS.showTitle : THREADS.foldTitle;
    setText(this.words, lanesSentence(lanes, !runsAtOnce(this.store.state.engine)));
    this.updateChips(lanes);
    if (this.folded) return;
    const { width } = this.redraw.size(this.wide);
    if (width > 0) this.canvas.draw(lanes, this.redraw.colours.get(), width);
    this.canvas.plane.label(`${THREADS.name}. ${this.words.textContent}`);
    this.twin.later();
    this.updateStrips(lanes);
    this.updateBoth(lanes);
  }

  /** @param {Lanes} lanes */
  updateStrips({ own, other, last, next }) {
    const head = this.store.live && this.store.atHead;
    const runs = this.store.headEngine.mode === "running";
    for (const [phase, cell] of this.cells) {
      const now = own?.phase === phase;
      const too = other?.phase === phase;
      const step = now ? own?.step : too ? other?.step : last.get(phase)?.step;
      setText(cell.lastElementChild ?? cell, step === undefined ? "" : String(step));
      cell.classList.toggle("is-now", now);
      cell.classList.toggle("is-meanwhile", too && !now);
      cell.classList.toggle("is-done", !now && !too && step !== undefined);
      cell.classList.toggle("is-next", head && !runs && next?.phase === phase);
      setAttribute(cell, "data-odd", step === undefined ? null : String(step % 2));
      setAttribute(cell, "aria-current", now ? "step" : null);
      setAttribute(cell, "disabled", last.has(phase) ? null : "");
      const title =
        step === undefined ? `${phase}: not yet` : `${phase} of step ${step}${too ? ", now" : ""}`;
      if (cell.title !== title) cell.title = title;
    }
  }

  /** @param {Lanes} lanes */
  updateBoth({ both }) {
    const any = both.of > 0;
    const sum = any ? `${micros(both.us)} of ${micros(both.of)}` : "";
    const share = any ? `${percent(both.us / both.of)} at once` : "";
    setTruth(this.both, "derived", `${BOTH_HOW} = ${sum}`, share);
    setTruth(this.times, "derived", BOTH_HOW, sum);
    setText(this.grid, `grid ${micros(this.canvas.grid)}`);
    setAttribute(this.wider, "disabled", this.canvas.zoom > LEAST_ZOOM ? null : "");
    setAttribute(this.closer, "disabled", this.canvas.zoom < MOST_ZOOM ? null : "");
  }

  /** @param {Lanes} lanes */
  updateChips(lanes) {
    const theme = themeOf(this.element);
    reconcile(
      this.chips,
      [...this.flightChips(lanes), ...this.droppedChips(), ...this.tokenChips()],
      (chip) => chip.key,
      (chip) =>
        el(chip.request ? "button" : "span", {
          class: `gb-inflight is-${chip.tone}`,
          type: chip.request ? "button" : undefined,
          onclick: () => chip.request && this.store.select({ request: chip.request }),
        }),
      (node, chip) => {
        setTruth(node, "measured", chip.how, chip.text);
        if (chip.request) node.style.setProperty("--tone", requestColour(chip.request, theme));
      },
    );
  }

  /** @param {Lanes} lanes @returns {Chip[]} */
  flightChips({ inFlight }) {
    const how =
      "engine.in_flight: it is scheduled, its output has not gone out, and this phase of it has " +
      "not ended";
    const chips = inFlight.map(({ step, next }) => ({
      key: `step ${step % 2}`,
      text: `${step}: ${next}`,
      how,
      tone: step % 2 ? "odd" : "even",
    }));
    return chips.length ? [{ key: "label", text: "in flight", how, tone: "label" }, ...chips] : [];
  }

  /** Requests that count on a token which nobody knows yet. @returns {Chip[]} */
  tokenChips() {
    const requests = this.store.state.requests ?? {};
    const waiting = Object.keys(requests).filter((id) => requests[id].num_output_placeholders);
    const chips = waiting.slice(0, MOST_CHIPS).map((id) => ({
      key: `token ${id}`,
      text: `${id} ${"▢".repeat(requests[id].num_output_placeholders)}`,
      how: UNKNOWN_HOW,
      tone: "token",
      request: id,
    }));
    const more = waiting.length - chips.length;
    if (more <= 0) return chips;
    return [...chips, { key: "more", text: `and ${more} more`, how: UNKNOWN_HOW, tone: "more" }];
  }

  /** The latest token that came and is not used, in the step at the cursor. @returns {Chip[]} */
  droppedChips() {
    const { store } = this;
    const entry = store.entryOnShow();
    if (!entry) return [];
    const dropped = store.eventsOfStep(entry).filter((event) => event.type === "token_dropped");
    const last = dropped[dropped.length - 1];
    if (!last) return [];
    const { facts, reason, seq } = last;
    const words = droppedWords(
      facts,
      reason !== undefined,
      store.state.requests?.[facts.request]?.finish_reason,
    );
    const more = dropped.length > 1 ? ` (and ${dropped.length - 1} before it)` : "";
    const how = `event ${seq} of the log`;
    const { request } = facts;
    return [{ key: `dropped ${seq}`, text: words + more, how, tone: "dropped", request }];
  }
}
