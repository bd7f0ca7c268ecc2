// @ts-check
/**
 * The frame of an open box, in the map's place: its name and live line, the other boxes shrunk to a
 * small map, what comes in at one edge and goes out at the other, and between them its room.
 */
import { liveOf } from "../boxes/live.js";
import { moments } from "../boxes/moment.js";
import { eventsUnderWay } from "../core/lanes.js";
import { el, icon, setAttribute, setText } from "../page/dom.js";
import { themeOf } from "../page/theme.js";
import { noLog } from "../words/empty.js";
import { BACK, BACK_HINT, COMES_IN, GOES_OUT, insideOf } from "../words/rooms.js";
import { MiniMap } from "./mini_map.js";
import { Ports } from "./ports.js";
import { mountRoom } from "./rooms.js";

/** @import { Component } from "../core/document.js" */
/** @import { ArchitectureMap } from "../map/map.js" */
/** @import { Room } from "./rooms.js" */

const LEFT = "M10 2.5 11.5 4 7.5 8l4 4-1.5 1.5L4.5 8z";
const OPENING_MS = 240;

export class RoomFrame {
  /** @param {ArchitectureMap} map that it covers */
  constructor(map) {
    const { store } = map;
    this.map = map;
    this.store = store;
    this.back = el(
      "button",
      {
        class: "gb-button gb-room-back",
        type: "button",
        title: BACK_HINT,
        "aria-label": BACK_HINT,
        onclick: () => store.openBox(null),
      },
      icon(LEFT),
      el("span", { text: BACK }),
    );
    this.title = el("h2");
    this.sub = el("span", { class: "gb-room-sub" });
    this.line = el("span", { class: "gb-room-line" });
    this.mini = new MiniMap(store);
    this.ins = new Ports(store, "in", COMES_IN);
    this.outs = new Ports(store, "out", GOES_OUT);
    this.body = el("div", { class: "gb-room-body" });
    this.empty = el("p", { class: "gb-room-empty" });
    this.element = el(
      "section",
      { class: "gb-room", hidden: true },
      el(
        "header",
        { class: "gb-room-head" },
        this.back,
        el("div", { class: "gb-room-name" }, this.title, this.sub),
        this.line,
        this.mini.element,
        map.moved.toggle(),
      ),
      this.ins.element,
      this.body,
      this.outs.element,
    );
    /** @type {Room|null} */
    this.room = null;
    this.opened = /** @type {string|null} */ (null);
    this.page = store.document;
    this.drawn = "";
  }

  destroy() {
    this.room?.destroy();
  }

  /** Bring the frame to what is open. @returns {boolean} whether a room covers the map */
  update() {
    const { store } = this;
    if (store.opened !== this.opened || store.document !== this.page) this.turn();
    if (this.opened === null) return false;
    this.draw();
    return true;
  }

  /** Another box is open, or none. */
  turn() {
    const { store } = this;
    const before = this.opened;
    const item = store.document.components.find((each) => each.id === store.opened) ?? null;
    this.room?.destroy();
    this.room = null;
    this.page = store.document;
    this.opened = item?.id ?? null;
    this.drawn = "";
    const hadFocus = this.element.matches(":focus-within");
    const from = item && before === null ? this.placeOf(item.id) : null;
    this.map.cover(item !== null);
    this.element.hidden = item === null;
    if (item) this.enter(item, from);
    else if (before !== null && hadFocus) this.map.boxes.get(before)?.node.focus();
  }

  /** @param {string} id @returns {DOMRect|null} where its box is on the map */
  placeOf(id) {
    return this.map.boxes.get(id)?.card.getBoundingClientRect() ?? null;
  }

  /** @param {Component} item @param {DOMRect|null} from where its box was */
  enter(item, from) {
    setAttribute(this.element, "aria-label", insideOf(item.label));
    setAttribute(this.element, "data-type", item.type);
    setText(this.title, item.label);
    setText(this.sub, item.sublabel ?? "");
    this.ins.build(item.id);
    this.outs.build(item.id);
    this.mini.build(item.id);
    this.body.replaceChildren();
    const root = el("div", { class: "gb-room-inside" });
    this.body.append(root, this.empty);
    this.room = mountRoom(item.live, root, this.store);
    if (from) this.grow(from);
    this.back.focus({ preventScroll: true });
  }

  /** The room comes out of its box. @param {DOMRect} box */
  grow(box) {
    if (this.map.reduced.matches) return;
    const own = this.element.getBoundingClientRect();
    if (!own.width || !box.width) return;
    const from =
      `translate(${box.left - own.left}px, ${box.top - own.top}px) ` +
      `scale(${box.width / own.width}, ${box.height / own.height})`;
    this.element.animate(
      [
        { transform: from, transformOrigin: "0 0", opacity: 0.2 },
        { transform: "none", transformOrigin: "0 0", opacity: 1 },
      ],
      { duration: OPENING_MS, easing: "cubic-bezier(0.2, 0.7, 0.2, 1)" },
    );
  }

  draw() {
    const { store } = this;
    const { header, records, cursor } = store;
    const item = store.document.components.find((each) => each.id === this.opened);
    const key = `${header?.trace_id} ${header?.base_seq} ${records.length} ${cursor}`;
    if (!header) setText(this.empty, noLog(store.modelStatus));
    const chosen = `${JSON.stringify(store.selection)} ${themeOf(this.element)}`;
    if (`${key} ${chosen}` === this.drawn && !this.room?.waits) return;
    this.drawn = `${key} ${chosen}`;
    const now = moments(store)(item?.live ?? null);
    // Canvases first: a font set on a canvas makes the browser work through changed elements.
    if (header) this.room?.update(now);
    this.empty.hidden = header !== null;
    setText(this.line, header ? (liveOf(item?.live ?? null, now)?.line ?? "") : "");
    const record = store.records[store.cursor];
    const event = record?.kind === "event" ? record : null;
    const events = eventsUnderWay(store);
    this.ins.update(events, event);
    this.outs.update(events, event);
    this.mini.update(events, event);
  }
}
