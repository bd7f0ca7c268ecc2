// @ts-check
/**
 * The slider over the whole log: steps as ticks below it, commands as dots, and above it the
 * moments of the kind that one jumps through, and the bookmarks.
 */
import { kindOf, momentsOf } from "../core/moments.js";
import { atOrBefore } from "../core/sorted.js";
import { markWords } from "../words/moments.js";
import { el, setAttribute } from "./dom.js";
import { themeOf } from "./theme.js";

/** @import { Sought } from "../core/moments.js" */
/** @import { Store } from "../core/store.js" */

/** Between two ticks of steps, and two marks, in pixels. */
const LEAST_TICK = 9;
const LEAST_MARK = 3;
/** How near the pointer must be to a mark that it is told of. */
const NEAR = 4;
const THUMB = 7;

export class Scrubber {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.drawn = "";
    this.size = { width: 0, height: 0 };
    /** @type {Sought} whose marks stand above the slider */
    this.kind = "any";
    this.range = /** @type {HTMLInputElement} */ (
      el("input", {
        type: "range",
        min: -1,
        max: 0,
        step: 1,
        value: -1,
        "aria-label": "Position in the log",
        oninput: () => store.seek(Number(this.range.value)),
        onpointermove: (/** @type {PointerEvent} */ event) => this.tell(event.offsetX),
      })
    );
    this.ticks = /** @type {HTMLCanvasElement} */ (el("canvas", { "aria-hidden": "true" }));
    this.element = el("div", { class: "gb-scrub" }, this.ticks, this.range);
    this.resize = new ResizeObserver(() => {
      this.size = { width: this.ticks.clientWidth, height: this.ticks.clientHeight };
      this.draw();
    });
    this.resize.observe(this.ticks);
  }

  destroy() {
    this.resize.disconnect();
  }

  /** @param {string} words where the cursor is */
  update(words) {
    const { store, range } = this;
    setAttribute(range, "max", String(Math.max(store.head, 0)));
    setAttribute(range, "disabled", store.head < 0 ? "" : null);
    if (Number(range.value) !== store.cursor) range.value = String(store.cursor);
    const share = (store.cursor + 1) / Math.max(1, store.head + 1);
    range.style.setProperty("--at", `${(share * 100).toFixed(2)}%`);
    setAttribute(range, "aria-valuetext", words);
    this.draw();
  }

  /** Pixels a record takes. */
  get room() {
    return (this.size.width - 2 * THUMB) / (this.store.head + 1);
  }

  /** Have the slider's title say what the mark under the pointer is. @param {number} x */
  tell(x) {
    const { store, room } = this;
    const places = momentsOf(store)[this.kind];
    const index = (x - THUMB) / room - 1;
    const at = atOrBefore(places.length, (k) => places[k], index);
    const near = [places[at], places[at + 1]].filter(
      (place) => place !== undefined && Math.abs(place - index) * room <= NEAR,
    );
    const best = near.sort((a, b) => Math.abs(a - index) - Math.abs(b - index))[0];
    const mark = store.bookmarks.list.find(
      ({ seq }) => Math.abs(seq - (store.header?.base_seq ?? 0) - index) * room <= NEAR,
    );
    const record = store.records[best];
    const kind = kindOf(record);
    const words = kind && record.kind === "event" ? markWords(kind, record) : "";
    this.range.title = [mark ? `★ ${mark.name}` : "", words].filter(Boolean).join("\n");
  }

  draw() {
    const { store, ticks } = this;
    const { width, height } = this.size;
    const ratio = devicePixelRatio || 1;
    const marks = store.bookmarks.places;
    const where = `${width} ${height} ${ratio} ${themeOf(ticks)} ${this.kind} ${marks.join(" ")}`;
    const key = `${store.header?.trace_id} ${store.header?.base_seq} ${store.head} ${where}`;
    if (key === this.drawn) return;
    this.drawn = key;
    ticks.width = width * ratio;
    ticks.height = height * ratio;
    const pen = ticks.getContext("2d");
    if (!pen || store.head < 0) return;
    pen.scale(ratio, ratio);
    const style = getComputedStyle(ticks);
    const colour = (/** @type {string} */ name) => style.getPropertyValue(`--gb-${name}`);
    this.drawSteps(pen, height, colour("faint"), colour("accent"));
    pen.fillStyle = colour("event");
    this.drawMarks(momentsOf(store)[this.kind], (x) => pen.fillRect(x - 0.75, 1, 1.5, 7));
    pen.fillStyle = colour("accent");
    this.drawMarks(marks, (x) => drawFlag(pen, x));
  }

  /**
   * @param {CanvasRenderingContext2D} pen @param {number} height
   * @param {string} plain @param {string} command
   */
  drawSteps(pen, height, plain, command) {
    const { store, room } = this;
    const every = tickStride(store.steps.length, this.size.width);
    let before = -10;
    for (const entry of store.steps) {
      if (!entry.command && entry.step % every) continue;
      const x = THUMB + (entry.first + 1) * room;
      if (x - before < 3) continue;
      before = x;
      pen.fillStyle = entry.command ? command : plain;
      if (entry.command) pen.fillRect(x - 1.5, height - 5, 3, 3);
      else pen.fillRect(x - 0.5, height - 7, 1, 6);
    }
  }

  /**
   * No more marks than there is room for.
   * @param {number[]} places @param {(x: number) => void} put
   */
  drawMarks(places, put) {
    const { room } = this;
    let before = -Infinity;
    for (const place of places) {
      const x = THUMB + (place + 1) * room;
      if (x - before < LEAST_MARK) continue;
      before = x;
      put(x);
    }
  }
}

/** @param {CanvasRenderingContext2D} pen @param {number} x */
function drawFlag(pen, x) {
  pen.fillRect(x - 0.75, 0, 1.5, 9);
  pen.beginPath();
  pen.moveTo(x, 0);
  pen.lineTo(x + 6, 2.5);
  pen.lineTo(x, 5);
  pen.fill();
}

/** @param {number} steps @param {number} width @returns {number} a tick every so many steps */
function tickStride(steps, width) {
  let stride = 1;
  for (let i = 0; (steps / stride) * LEAST_TICK > width; i += 1) stride *= i % 3 === 1 ? 2.5 : 2;
  return stride;
}
