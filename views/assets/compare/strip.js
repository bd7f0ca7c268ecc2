// @ts-check
/** One run: its requests over the steps of the clock, and what it did in the step at hand. */
import { el, setText } from "../page/dom.js";
import { line } from "../panels/lifecycle_cells.js";
import { model } from "../panels/lifecycle_model.js";
import { BARS } from "../panels/lifecycle_bars.js";
import { Timeline } from "../panels/lifecycle_timeline.js";
import { haloText } from "../panels/canvas.js";
import { Sentence, Twin } from "../panels/parts.js";
import { WORDS } from "../words/compare.js";

/** @import { Palette } from "../panels/canvas.js" */
/** @import { Model } from "../panels/lifecycle_model.js" */
/** @import { SharedClock, BesideStore } from "./clock.js" */

/** The lifecycle's timeline, whose columns are the clock's, with the first difference marked. */
class SharedTimeline extends Timeline {
  /**
   * @param {BesideStore} store @param {HTMLElement} root @param {SharedClock} clock
   * @param {number|null} parts the step of the first difference
   */
  constructor(store, root, clock, parts) {
    super(store, root);
    this.clock = clock;
    this.parts = parts;
  }

  /** @param {number} width */
  window(width) {
    const { column, from, to } = this.clock.window(width);
    this.column = column;
    return { from, to };
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    this.pan = this.clock.pan;
    super.wheel(event);
    this.clock.pan = this.pan;
  }

  /**
   * @param {Model} data @param {Palette} colours @param {number} width
   * @param {{from: number, to: number}} window @param {number} height
   */
  draw(data, colours, width, window, height) {
    super.draw(data, colours, width, window, height);
    if (this.parts === null || this.parts < window.from || this.parts > window.to) return;
    const x = this.x(this.parts) + 0.5;
    for (const plane of [this.bars.plane, this.plane]) {
      const c = plane.context;
      c.globalAlpha = 1;
      c.strokeStyle = colours.bad;
      c.lineWidth = 1.5;
      c.setLineDash([4, 3]);
      line(c, x, plane === this.bars.plane ? 4 : 0, x, plane.height);
      c.setLineDash([]);
      c.lineWidth = 1;
    }
    const c = this.bars.plane.context;
    c.font = `600 11px ${colours.font}`;
    c.fillStyle = colours.bad;
    c.textBaseline = "middle";
    // Above the cursor's column stands how many tokens it has.
    const left = x + (data.step === this.parts ? this.column : 0) + 4;
    const fits = left + c.measureText(WORDS.parts).width < width;
    c.textAlign = fits ? "left" : "right";
    haloText(c, WORDS.parts, fits ? left : x - 4, BARS.top - 8, colours.panel);
  }
}

export class Strip {
  /**
   * @param {BesideStore} store @param {HTMLElement} root positioned @param {string} side
   * @param {string} label @param {SharedClock} clock @param {number|null} parts
   * @param {(HTMLElement)[]} buttons
   */
  constructor(store, root, side, label, clock, parts, buttons) {
    this.store = store;
    this.side = side;
    this.timeline = new SharedTimeline(store, root, clock, parts);
    this.sentence = new Sentence(store);
    this.ended = el("p", { class: "gbc-ended" });
    this.end = clock.ends[clock.stores.indexOf(store)];
    this.clock = clock;
    this.twin = new Twin(WORDS.twin(side), WORDS.twinColumns, () => this.twinRows());
    this.element = el(
      "section",
      { class: "gbc-strip", "aria-label": WORDS.strip(side, label), "data-side": side },
      el(
        "div",
        { class: "gbc-strip-head" },
        el("b", { class: "gbc-badge", text: side }),
        el("span", { class: "gbc-label", text: label }),
        ...buttons,
      ),
      this.timeline.scroll,
      el("div", { class: "gbc-said" }, this.sentence.element, this.ended),
      this.twin.element,
    );
  }

  /** @param {Palette} colours @param {number} width @param {number} height of the timeline */
  draw(colours, width, height) {
    const window = this.timeline.window(width);
    this.data = model(this.store, window);
    this.timeline.draw(this.data, colours, width, window, height);
    this.sentence.update(this.data.sentence);
    const over = this.clock.step > this.end;
    this.sentence.element.hidden = over;
    setText(this.ended, over ? WORDS.ended(this.end + 1) : "");
    const { step, rows } = this.data;
    this.timeline.plane.label(WORDS.plane(this.side, step, rows.length));
    this.twin.later();
  }

  twinRows() {
    const rows = this.data?.rows ?? [];
    return rows.map((row) => [
      row.id,
      row.cells
        .filter((cell) => cell.tokens !== undefined)
        .map(WORDS.cell)
        .join("; "),
    ]);
  }

  destroy() {
    this.twin.destroy();
  }
}
