// @ts-check
/**
 * A canvas that fills its place in a room. What is drawn on it is told to it as spots: they can be
 * pointed at, walked by the arrow keys and chosen, and tests read them.
 *
 * @typedef {{kind: string, key: string, x: number, y: number, w: number, h: number,
 *   lines?: () => string[], choose?: () => void, of?: any}} Spot `of`: what it stands for
 */
import { Plane } from "../panels/canvas.js";
import { Tip, Twin, redrawOnChange } from "../panels/parts.js";
import { el } from "../page/dom.js";

/** @import { Palette } from "../panels/canvas.js" */

/** @type {WeakMap<Element, Board>} */
const boards = new WeakMap();

/** The board of a canvas, for tests. @param {Element} canvas */
export const boardOf = (canvas) => boards.get(canvas);

export class Board {
  /**
   * @param {HTMLElement} root the room's inside @param {string} label
   * @param {(c: CanvasRenderingContext2D, size: {w: number, h: number}, colours: Palette,
   *   board: Board) => void} draw
   * @param {{caption: string, columns: string[], rows: () => string[][]}} twin for those who do
   *   not see it
   */
  constructor(root, label, draw, twin) {
    this.draw = draw;
    this.plane = new Plane(label, "gb-board");
    this.plane.canvas.tabIndex = 0;
    this.tip = new Tip(root);
    this.twin = new Twin(twin.caption, twin.columns, twin.rows);
    this.place = el("div", { class: "gb-room-floor" }, this.plane.canvas, this.twin.element);
    /** @type {Spot[]} in the order of reading */
    this.spots = [];
    this.at = -1;
    this.ready = false;
    root.append(this.place);
    this.page = redrawOnChange(root, () => this.paint(), [], [this.place]);
    boards.set(this.plane.canvas, this);
    this.listen();
  }

  destroy() {
    this.page.destroy();
    this.twin.destroy();
  }

  /** Draw anew: what is drawn has changed. */
  update() {
    this.ready = true;
    this.paint();
    this.twin.later();
  }

  paint() {
    if (!this.ready) return;
    const { width, height } = this.page.size(this.place);
    if (!width || !height) return;
    const c = this.plane.begin(width, height);
    c.textBaseline = "middle";
    this.spots = [];
    const colours = this.page.colours.get();
    this.draw(c, { w: width, h: height }, colours, this);
    const spot = this.spots[this.at];
    if (!spot) return;
    c.strokeStyle = colours.text;
    c.lineWidth = 1.5;
    c.strokeRect(spot.x - 1.5, spot.y - 1.5, spot.w + 3, spot.h + 3);
  }

  /** @param {Spot} spot */
  spot(spot) {
    this.spots.push(spot);
  }

  // -- pointer and keys --------------------------------------------------------------------------

  listen() {
    const { canvas } = this.plane;
    canvas.addEventListener("mousemove", (event) => this.hover(event));
    canvas.addEventListener("mouseleave", () => {
      this.tip.hide();
      this.mark(-1);
    });
    canvas.addEventListener("click", (event) => this.spots[this.find(event)]?.choose?.());
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => this.mark(-1));
  }

  /** @param {MouseEvent} event */
  find(event) {
    const { x, y } = this.plane.at(event);
    return this.spots.findLastIndex(
      (spot) => x >= spot.x && x < spot.x + spot.w && y >= spot.y && y < spot.y + spot.h,
    );
  }

  /** @param {MouseEvent} event */
  hover(event) {
    const at = this.find(event);
    this.mark(at);
    const lines = this.spots[at]?.lines?.();
    if (lines) this.tip.show(event, lines);
    else this.tip.hide();
    this.plane.canvas.style.cursor = this.spots[at]?.choose ? "pointer" : "";
  }

  /** @param {number} at */
  mark(at) {
    if (at === this.at) return;
    this.at = at;
    this.page.again();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const spot = this.spots[this.at];
    if (event.key === "Enter" && spot?.choose) spot.choose();
    else if (event.key === "ArrowRight" || event.key === "ArrowDown") this.walk(1);
    else if (event.key === "ArrowLeft" || event.key === "ArrowUp") this.walk(-1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {1 | -1} way */
  walk(way) {
    if (!this.spots.length) return;
    const at = this.at < 0 ? (way > 0 ? 0 : this.spots.length - 1) : this.at + way;
    this.mark(Math.max(0, Math.min(this.spots.length - 1, at)));
    const lines = this.spots[this.at]?.lines?.();
    if (lines) this.plane.label(lines.join(". "));
  }
}
