// @ts-check
/**
 * Plays a walk: which program, how many pages of it are read, and on by itself where wanted. The
 * shares of a decode are followed by what makes one softmax of them, move by move.
 */
import { el, icon, setAttribute } from "../page/dom.js";
import { setTruth } from "../page/truth.js";
import {
  REDUCED_HOW,
  REDUCTION_MOVES,
  TRACED_HOW,
  programWords,
  reductionName,
  reductionWords,
  standWords,
} from "../words/kernel.js";

/** @import { KernelTrace } from "../words/kernel.js" */

const WHOLE_MS = 12_000; // a long walk takes as long as this
const [FASTEST_MS, SLOWEST_MS] = [60, 800]; // between two pages
const MOVE_MS = 2_400; // between two moves of the reduction: there is more to read

/** Paths in a square of 16. */
const ICONS = {
  back: "M11.5 3v10L5 8z",
  play: "M4 2.5 13.5 8 4 13.5z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z",
  on: "M4.5 3v10L11 8z",
};

export class Player {
  /** @param {() => void} moved another moment, or program, is to be shown */
  constructor(moved) {
    this.moved = moved;
    /** @type {KernelTrace | null} */
    this.trace = null;
    this.program = 0;
    this.at = 0;
    this.head = 0; // the place of the query head whose reduction is shown
    this.timer = 0;
    this.reduced = matchMedia("(prefers-reduced-motion: reduce)");
    this.back = button("back", "One page back", () => this.stepTo(this.at - 1));
    this.play = button("play", "Play", () => this.toggle());
    this.on = button("on", "One page on", () => this.stepTo(this.at + 1));
    this.range = /** @type {HTMLInputElement} */ (
      el("input", {
        type: "range",
        min: "0",
        step: "1",
        "aria-label": "Pages read",
        oninput: () => this.stepTo(Number(this.range.value)),
      })
    );
    this.choice = /** @type {HTMLSelectElement} */ (
      el("select", {
        class: "gb-select",
        "aria-label": "Program",
        onchange: () => this.choose(Number(this.choice.value)),
      })
    );
    this.words = el("p", { class: "gbp-kstand", "aria-live": "polite" });
    this.element = el(
      "div",
      { class: "gbp-kplayer", onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event) },
      this.choice,
      el("div", { class: "gbp-kbuttons" }, this.back, this.play, this.on),
      this.range,
      this.words,
    );
  }

  /** Whether the reduction is shown, and no program's walk. */
  get reduces() {
    return this.trace?.reduction !== null && this.program === this.trace?.programs.length;
  }

  get length() {
    if (this.reduces) return REDUCTION_MOVES;
    return this.trace?.programs[this.program]?.visits.length ?? 0;
  }

  /** @param {KernelTrace} trace from its last program on, whose rows see most */
  open(trace) {
    this.trace = trace;
    this.choice.replaceChildren(
      ...trace.programs.map((program, i) =>
        el("option", { value: String(i), text: programWords(trace, program) }),
      ),
    );
    const last = String(trace.programs.length);
    if (trace.reduction)
      this.choice.append(el("option", { value: last, text: reductionName(trace) }));
    this.choice.hidden = trace.programs.length < 2;
    this.choose(trace.programs.length - 1);
  }

  /** @param {number} program */
  choose(program) {
    this.program = program;
    this.choice.value = String(program);
    this.at = 0;
    this.range.max = String(this.length);
    if (this.reduced.matches) this.stepTo(this.length);
    else this.start();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const onField = event.target === this.range || event.target === this.choice;
    if (move !== undefined && !onField) {
      this.stepTo(this.at + move);
      event.preventDefault();
    }
    if (move !== undefined || event.key === " ") event.stopPropagation(); // not the engine's keys
  }

  toggle() {
    if (this.timer) this.stop();
    else if (this.reduced.matches) this.stepTo(this.at < this.length ? this.length : 0);
    else this.start();
  }

  start() {
    if (this.at >= this.length) this.at = 0;
    const even = Math.max(FASTEST_MS, Math.min(SLOWEST_MS, WHOLE_MS / Math.max(1, this.length)));
    clearInterval(this.timer);
    this.timer = window.setInterval(() => this.next(), this.reduces ? MOVE_MS : even);
    this.show();
  }

  /** A page, or a move, further. What the last share is followed by begins by itself. */
  next() {
    const { programs, reduction } = /** @type {KernelTrace} */ (this.trace);
    this.at += 1;
    if (this.at < this.length) this.show();
    else if (this.at > this.length && reduction && this.program === programs.length - 1)
      this.choose(programs.length);
    else if (!reduction || this.program !== programs.length - 1) this.stop();
    else this.show(); // the last page is in sight for a while
  }

  stop() {
    clearInterval(this.timer);
    this.timer = 0;
    this.show();
  }

  /** By hand. @param {number} at */
  stepTo(at) {
    this.at = Math.max(0, Math.min(this.length, at));
    this.stop();
  }

  show() {
    const { trace } = this;
    if (!trace) return;
    this.range.value = String(this.at);
    const words =
      this.reduces && trace.reduction
        ? reductionWords(trace.reduction, this.head, this.at)
        : standWords(trace, trace.programs[this.program], this.at);
    setTruth(this.words, "measured", this.reduces ? REDUCED_HOW : TRACED_HOW, words);
    // Whoever listens is told where it stops, not each page on the way.
    setAttribute(this.words, "aria-live", this.timer ? "off" : "polite");
    setAttribute(this.range, "aria-valuetext", words);
    face(this.play, this.timer ? "pause" : "play", this.timer ? "Pause" : "Play");
    this.moved();
  }

  destroy() {
    clearInterval(this.timer);
  }
}

/** @param {keyof typeof ICONS} name @param {string} label @param {() => void} act */
function button(name, label, act) {
  const node = el("button", { class: "gb-button", type: "button", onclick: act });
  face(node, name, label);
  return node;
}

/** @param {HTMLElement} node @param {keyof typeof ICONS} name @param {string} label */
function face(node, name, label) {
  if (node.getAttribute("aria-label") === label) return;
  setAttribute(node, "aria-label", label);
  node.title = label;
  node.replaceChildren(icon(ICONS[name]));
}
