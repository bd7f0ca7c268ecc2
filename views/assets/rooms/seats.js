// @ts-check
/**
 * Cards of requests on one plane, each where its queue has it: what changes its queue moves there.
 * Places are computed, never measured, so that an update costs no layout.
 */
import { el, setAttribute, setText } from "../page/dom.js";
import { themeOf } from "../page/theme.js";
import { requestColour } from "../words/colours.js";
import { count } from "../words/format.js";
import { seatText } from "../words/rooms.js";

/** @import { Store } from "../core/store.js" */
/** @import { Seat } from "./scheduler_model.js" */

/** @typedef {{x: number, y: number, w: number, h: number}} Area in pixels */
/** @typedef {{columns: number, w: number, h: number, fit: number}} Grid */

/** From roomy to small: least width and height of a card, in pixels. */
const SIZES = [
  { w: 176, h: 46 },
  { w: 118, h: 46 },
  { w: 118, h: 26 },
  { w: 84, h: 26 },
  { w: 54, h: 20 },
];
const MOST_WIDE = 380;
const GAP = 6;
const MOVE_MS = 320; // of a movement, in rooms.css; what comes sooner is not waited for

/**
 * The largest cards with which so many fit.
 * @param {number} n @param {Area} area @returns {Grid}
 */
export function gridOf(n, area) {
  for (const [i, size] of SIZES.entries()) {
    const columns = Math.max(1, Math.floor((area.w + GAP) / (size.w + GAP)));
    const rows = Math.max(1, Math.floor((area.h + GAP) / (size.h + GAP)));
    if (columns * rows < n && i < SIZES.length - 1) continue;
    const w = Math.min(MOST_WIDE, (area.w + GAP) / columns - GAP);
    return { columns, w: Math.floor(w), h: size.h, fit: columns * rows };
  }
  throw new Error("unreachable: the smallest size is always taken");
}

/** @param {Grid} grid @param {Area} area @param {number} place */
export function placeAt({ columns, w, h }, area, place) {
  return {
    x: area.x + (place % columns) * (w + GAP),
    y: area.y + Math.floor(place / columns) * (h + GAP),
  };
}

export class Seats {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.element = el("div", { class: "gb-seats", role: "list" });
    /** @type {Map<string, HTMLElement>} */
    this.cards = new Map();
    this.movedAt = -Infinity;
  }

  /** @param {{seat: Seat, area: Area, grid: Grid, place: number}[]} placed */
  update(placed) {
    const quick = performance.now() - this.movedAt < MOVE_MS;
    const stays = new Set();
    const theme = themeOf(this.element);
    for (const { seat, area, grid, place } of placed) {
      stays.add(seat.id);
      let card = this.cards.get(seat.id);
      if (!card) {
        card = this.makeCard(seat.id);
        this.cards.set(seat.id, card);
        this.element.append(card);
      }
      this.fill(card, seat, grid, theme);
      this.place(card, placeAt(grid, area, place), grid, quick);
    }
    for (const [id, card] of this.cards) {
      if (stays.has(id)) continue;
      card.remove();
      this.cards.delete(id);
    }
  }

  /**
   * A card moves to where it stands now; where the queues change faster than that it is there.
   * @param {HTMLElement} card @param {{x: number, y: number}} to @param {Grid} grid
   * @param {boolean} quick
   */
  place(card, { x, y }, { w, h }, quick) {
    const at = `${x} ${y} ${w}`;
    const before = card.dataset.at;
    if (before === at) return;
    card.dataset.at = at;
    card.classList.toggle("is-quick", quick);
    card.style.transform = `translate(${x}px, ${y}px)`;
    card.style.width = `${w}px`;
    card.style.height = `${h}px`;
    if (before !== undefined) this.movedAt = performance.now();
  }

  /** @param {string} id */
  makeCard(id) {
    const card = el(
      "button",
      {
        class: "gb-seat",
        type: "button",
        "data-request": id,
        onclick: () => this.store.select({ request: id }),
      },
      el("span", { class: "gb-seat-id", text: id }),
      el("span", { class: "gb-seat-given" }),
      el("span", { class: "gb-seat-note" }),
      el(
        "span",
        { class: "gb-seat-bar" },
        ...["hit", "done", "next"].map((part) => el("i", { class: `is-${part}` })),
      ),
    );
    return el("div", { role: "listitem", class: "gb-seat-place" }, card);
  }

  /** @param {HTMLElement} place @param {Seat} seat @param {Grid} grid @param {string} theme */
  fill(place, seat, grid, theme) {
    const card = /** @type {HTMLElement} */ (place.firstElementChild);
    const [, given, note, bar] = /** @type {any} */ (card.children);
    const colour = requestColour(seat.id, theme);
    if (card.dataset.colour !== colour) {
      card.dataset.colour = colour;
      card.style.setProperty("--hue", colour);
    }
    const size = grid.h > 40 ? (grid.w > 150 ? "full" : "middle") : grid.w > 70 ? "small" : "least";
    setAttribute(card, "data-size", size);
    setAttribute(card, "data-mark", seat.mark || null);
    setAttribute(card, "aria-pressed", String(this.store.selection.request === seat.id));
    const progress = `${count(seat.done)} / ${count(seat.known)}`;
    setText(given, seat.given ? `+${count(seat.given)}` : "");
    setText(note, seat.note || progress);
    setAttribute(card, "title", seatText(seat, progress));
    const whole = Math.max(1, seat.known, seat.done + seat.scheduled);
    const parts = [seat.hit, seat.done - seat.hit, seat.scheduled];
    parts.forEach((part, i) => {
      const width = `${Math.round((1000 * Math.max(0, part)) / whole) / 10}%`;
      if (bar.children[i].style.width !== width) bar.children[i].style.width = width;
    });
  }
}
