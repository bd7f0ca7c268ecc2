// @ts-check
/** The scheduler's inside: who waits, who runs, and the step's token budget as it is spent. */
import { once } from "../core/once.js";
import { el, reconcile, setAttribute, setText } from "../page/dom.js";
import { Parts } from "../page/pace.js";
import { themeOf } from "../page/theme.js";
import { setTruth, truth } from "../page/truth.js";
import { requestColour } from "../words/colours.js";
import { count } from "../words/format.js";
import * as words from "../words/rooms.js";
import { model } from "./scheduler_model.js";
import { Seats, gridOf, placeAt } from "./seats.js";

/** @import { Moment } from "../boxes/moment.js" */
/** @import { Store } from "../core/store.js" */
/** @import { Model, Spent } from "./scheduler_model.js" */
/** @import { Area, Grid } from "./seats.js" */

const HEAD = 24; // pixels of a queue's heading
const APART = 22; // pixels between the queues
const WIDE = 460; // pixels from which the queues stand side by side
const FEW_SEATS = 12; // so many seats are drawn though nobody has them
const LEAST_TEXT = 46; // pixels of a share that has its request's name in it
const LEAST_NUMBER = 15; // and its tokens alone

class SchedulerRoom {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.store = store;
    this.root = root;
    this.sum = truth("derived", words.BUDGET_HOW);
    this.shares = el("div", { class: "gb-budget-bar" });
    this.said = el("p", { class: "gb-room-said" });
    this.seats = new Seats(store);
    this.outlines = el("div", { class: "gb-seat-outlines", "aria-hidden": "true" });
    this.heads = {
      waiting: queueHead(words.WAITING, words.NOBODY_WAITS),
      running: queueHead(words.RUNNING, words.NOBODY_RUNS),
    };
    this.floor = el(
      "div",
      { class: "gb-room-floor" },
      this.outlines,
      this.heads.waiting.element,
      this.heads.running.element,
      this.seats.element,
    );
    root.append(
      el(
        "div",
        { class: "gb-budget" },
        el("div", { class: "gb-room-caption" }, el("h3", { text: words.BUDGET }), this.sum),
        this.shares,
        this.said,
      ),
      this.floor,
    );
    /** @type {Model|null} */
    this.data = null;
    this.fresh = /** @type {() => Model|null} */ (() => null);
    this.parts = new Parts(store, [() => this.drawBudget(), () => this.drawSeats()]);
    this.size = { w: 0, h: 0 };
    this.outlined = "";
    this.observer = new ResizeObserver(() => {
      this.size = { w: this.floor.clientWidth, h: this.floor.clientHeight };
      this.lay();
    });
    this.observer.observe(this.floor);
  }

  destroy() {
    this.observer.disconnect();
    this.parts.stop();
  }

  /** Whether it has not drawn what is new yet. */
  get waits() {
    return this.parts.waits;
  }

  /** @param {Moment} now */
  update(now) {
    this.fresh = once(() => model(this.store, now));
    this.parts.update();
  }

  drawSeats() {
    this.data = this.fresh();
    this.lay();
  }

  drawBudget() {
    const { spent, total, budget, said, none } = /** @type {Model} */ (this.fresh());
    setTruth(this.sum, "derived", words.BUDGET_HOW, `${count(total)} / ${count(budget)}`);
    const theme = themeOf(this.root);
    const room = this.size.w;
    reconcile(
      this.shares,
      spent,
      (share) => share.request,
      () => el("i", {}, el("span", {})),
      (node, share) => fillShare(node, share, budget, theme, room),
    );
    setText(this.said, said || none);
  }

  /** Where the queues stand, and their cards in them. */
  lay() {
    const { data, size } = this;
    if (!data || !size.w) return;
    const areas = areasOf(size, data);
    const queues = /** @type {const} */ (["waiting", "running"]);
    const placed = [];
    for (const name of queues) {
      const area = areas[name];
      const queue = data[name];
      const least = name === "running" ? Math.min(data.seats, FEW_SEATS) : 1;
      const grid = gridOf(Math.max(queue.length, least), area);
      const fit = Math.min(queue.length, queue.length > grid.fit ? grid.fit - 1 : grid.fit);
      for (let place = 0; place < fit; place += 1)
        placed.push({ seat: queue[place], area, grid, place });
      this.drawHead(name, area, queue.length, queue.length - fit);
      if (name === "running") this.drawOutlines(area, grid, data);
    }
    this.seats.update(placed);
  }

  /**
   * @param {"waiting" | "running"} name @param {Area} area @param {number} length
   * @param {number} more
   */
  drawHead(name, area, length, more) {
    const head = this.heads[name];
    const at = `translate(${area.x}px, ${area.y - HEAD}px)`;
    if (head.element.style.transform !== at) head.element.style.transform = at;
    const width = `${area.w}px`;
    if (head.element.style.width !== width) head.element.style.width = width;
    const seats = /** @type {Model} */ (this.data).seats;
    if (name === "running")
      setTruth(head.size, "measured", words.RUNNING_HOW, `${count(length)} / ${count(seats)}`);
    else setTruth(head.size, "measured", words.WAITING_HOW, count(length));
    setText(head.more, more > 0 ? words.moreOf(more) : "");
    head.none.hidden = length > 0;
  }

  /** Seats that nobody has. @param {Area} area @param {Grid} grid @param {Model} data */
  drawOutlines(area, grid, { seats, running }) {
    const shown = Math.min(seats, grid.fit);
    const key = `${JSON.stringify([area, grid])} ${shown} ${running.length}`;
    if (key === this.outlined) return;
    this.outlined = key;
    const free = [];
    for (let place = running.length; place < shown; place += 1)
      free.push(placeAt(grid, area, place));
    reconcile(
      this.outlines,
      free,
      ({ x, y }) => `${x} ${y}`,
      () => el("i"),
      (node, { x, y }) => {
        node.style.transform = `translate(${x}px, ${y}px)`;
        node.style.width = `${grid.w}px`;
        node.style.height = `${grid.h}px`;
      },
    );
  }
}

/** @param {string} name @param {string} nobody what stands there while it is empty */
function queueHead(name, nobody) {
  const size = truth("measured", "");
  const more = el("span", { class: "gb-queue-more" });
  const none = el("p", { class: "gb-queue-none", text: nobody });
  const element = el("div", { class: "gb-queue-head" }, el("h3", { text: name }), size, more, none);
  return { element, size, more, none };
}

/**
 * Side by side where there is room, else the running ones below.
 * @param {{w: number, h: number}} size @param {Model} data
 * @returns {{waiting: Area, running: Area}}
 */
function areasOf({ w, h }, { waiting, running }) {
  if (w >= WIDE) {
    const half = Math.floor((w - APART) / 2);
    const area = { y: HEAD, w: half, h: h - HEAD };
    return { waiting: { x: 0, ...area }, running: { x: half + APART, ...area } };
  }
  const part = waiting.length > running.length ? 0.5 : 0.42;
  const high = Math.floor((h - 2 * HEAD - 8) * part);
  return {
    waiting: { x: 0, y: HEAD, w, h: high },
    running: { x: 0, y: 2 * HEAD + 8 + high, w, h: h - 2 * HEAD - 8 - high },
  };
}

/**
 * @param {HTMLElement} node @param {Spent} share @param {number} budget @param {string} theme
 * @param {number} room pixels of the whole bar
 */
function fillShare(node, share, budget, theme, room) {
  const part = budget ? share.tokens / budget : 0;
  const width = `${Math.round(part * 10_000) / 100}%`;
  if (node.style.width !== width) node.style.width = width;
  const colour = requestColour(share.request, theme);
  if (node.dataset.colour !== colour) {
    node.dataset.colour = colour;
    node.style.setProperty("--hue", colour);
  }
  setAttribute(node, "data-request", share.request);
  setAttribute(node, "data-tokens", String(share.tokens));
  node.classList.toggle("is-now", share.now);
  setAttribute(node, "title", words.shareText(share));
  const pixels = part * room;
  const tokens = pixels < LEAST_NUMBER ? "" : count(share.tokens);
  const text = pixels < LEAST_TEXT ? tokens : `${share.request} ${tokens}`;
  setText(/** @type {Element} */ (node.firstElementChild), text);
}

/** @param {HTMLElement} root @param {Store} store */
export function mount(root, store) {
  return new SchedulerRoom(root, store);
}
