// @ts-check
/**
 * The map's words: letters keep a least size on the screen, a box grows for its words where there
 * is room, and what does not fit is cut with an ellipsis.
 */
import { placeClaimFlag } from "./claim_flag.js";
import {
  MOST_TRAVELS,
  bordersOf,
  layFrames,
  rowsOf,
  settleNames,
  writeRows,
} from "./label_room.js";
import { PATH_LETTERS, PATH_SIGN } from "./path.js";
import { placeOpener } from "./pieces.js";
import {
  DRAWER,
  cut,
  drawerPath,
  frameAt,
  hullOf,
  labelSpot,
  overlap,
  place,
  round,
  roundedPath,
  segmentsOf,
  spinePath,
  textArea,
  textWidth,
  tipPath,
} from "./shapes.js";

/** @import { Area, Component, Connection } from "../core/document.js" */
/** @import { ArchitectureMap } from "./map.js" */

const MOST_GROWTH = 22; // by which a box may be drawn wider on a side, for its words
const PATH_FLAG = 30; // pixels of a path's box that its claims' mark takes
const TIGHTEST = 0.92; // of its size, for words that would be cut else
const LEAST_PX = 11.2; // that letters of the fitted map have on the screen, where boxes allow it
const ASIDE = [0, -0.9, 0.9, -1.8, 1.8]; // sizes of a letter
const TOUR_PX = 14; // the same in front of a room
const MOST = 16; // size of letters, in the map's units, that three rows of a box have room for
const MOST_TERSE = 19; // and that its title alone has room for, in one row or in two

export class TextFit {
  /** @param {ArchitectureMap} map */
  constructor(map) {
    this.map = map;
    this.scale = 0;
    /** Counts how often the texts were fitted. */
    this.layouts = 0;
    /** The sides of the frames, as they are drawn. @type {Area[]} */
    this.borders = [];
    /** Sizes of letters, in the map's units. */
    this.sizes = { small: 12.5, big: 14 };
    /** Whether boxes have room for their titles alone. */
    this.isTerse = false;
    this.inTour = false;
  }

  /** Fit again, whatever the size was before. */
  anew() {
    this.scale = 0;
    this.fit();
  }

  /** Letters keep a least size on the screen; what does not fit its box is cut with an ellipsis. */
  fit() {
    if (!this.map.page) return;
    const width = this.map.stage.clientWidth;
    const height = this.map.stage.clientHeight;
    if (!width || !height) return;
    const scale = Math.min(width / this.map.bounds.w, height / this.map.bounds.h);
    const inTour = Boolean(this.map.stage.closest("[data-tour]"));
    if (Math.abs(scale - this.scale) < 0.004 && inTour === this.inTour) return;
    this.scale = scale;
    this.inTour = inTour;
    this.layouts += 1;
    const { isPath } = this.map.drawn;
    const wanted = (inTour ? TOUR_PX : LEAST_PX) / scale;
    this.isTerse = !isPath && wanted > MOST + 1;
    const small = Math.min(MOST, Math.max(12.2, wanted));
    const most = this.isTerse ? MOST_TERSE : MOST;
    const big = Math.min(most, Math.max(14, wanted + 0.3 / scale));
    this.sizes = isPath ? PATH_LETTERS : { small, big };
    for (const box of this.map.boxes.values())
      box.geo = isPath ? box.item : this.widened(box.item);
    for (const box of this.map.boxes.values()) this.layBox(box);
    for (const line of this.map.lines) this.layLine(line);
    const frames = isPath ? [] : layFrames(this.map);
    if (!isPath) settleNames(this.map, frames);
    this.borders = frames.flatMap(bordersOf);
    for (const line of this.map.lines) this.layQuantity(line);
    for (const frame of this.map.frames) {
      const { small: size } = this.sizes;
      const wide = textWidth(frame.label, size, 600);
      const fits = isPath ? 1 : Math.min(1, frame.room / wide);
      frame.text.setAttribute("font-size", String(round(size * fits)));
      if (isPath) frame.text.textContent = cut(frame.label, frame.room, this.sizes.small, 600);
    }
  }

  /**
   * Where a line runs: its ends stay on the sides of their boxes, however wide these are drawn, and
   * what leaves or enters from below does so at the drawer's lower edge.
   * @param {Connection} item
   */
  trimmed(item) {
    const points = item.points.map(([x, y]) => [x, y]);
    if (points.length < 2) return points;
    /** @type {[number[], number[], string][]} */
    const ends = [
      [points[0], points[1], item.from],
      [points[points.length - 1], points[points.length - 2], item.to],
    ];
    for (const [end, next, id] of ends) {
      const box = this.map.boxes.get(id);
      if (!box) continue;
      const { x, y, w, h } = box.item;
      if (Math.abs(end[0] - x) < 0.6) end[0] = box.geo.x;
      else if (Math.abs(end[0] - x - w) < 0.6) end[0] = box.geo.x + box.geo.w;
      else if (Math.abs(end[1] - y - h) < 0.6 && next[1] > end[1] + DRAWER + 6) end[1] += DRAWER;
    }
    return points;
  }

  /**
   * A box as wide as its words need, where its neighbours and the labels between leave room: on a
   * small screen letters shrink less than boxes do.
   * @param {Component} item
   * @returns {Area}
   */
  widened(item) {
    const { small, big } = this.sizes;
    const rows = rowsOf(item.label, big).map((row) =>
      Math.max(...row.map((text) => textWidth(text, big, 650))),
    );
    const words = this.isTerse
      ? Math.min(...rows)
      : Math.max(
          rows[0],
          textWidth(item.sublabel ?? "", small, 400),
          textWidth(item.tag ?? "", small, 600),
        );
    const missing = words + 19 - item.w;
    if (missing <= 0) return item;
    const left = this.roomBeside(item, -1);
    const right = this.roomBeside(item, 1);
    const part = Math.min(1, missing / (left + right || 1));
    return {
      x: round(item.x - left * part),
      y: item.y,
      w: round(item.w + (left + right) * part),
      h: item.h,
    };
  }

  /** By how much a box may grow there. @param {Component} item @param {-1|1} side */
  roomBeside(item, side) {
    const edge = side < 0 ? item.x : item.x + item.w;
    const rim = side < 0 ? this.map.bounds.x : this.map.bounds.x + this.map.bounds.w;
    let room = Math.min(MOST_GROWTH, side * (rim - edge) - 7);
    for (const other of this.map.drawn.components) {
      if (
        other === item ||
        other.y > item.y + item.h + DRAWER ||
        other.y + other.h + DRAWER < item.y
      )
        continue;
      const gap = side < 0 ? edge - (other.x + other.w) : other.x - edge;
      if (gap < 0) continue;
      room = Math.min(room, (gap - this.widestLabelBetween(item, other) - 22) / 2);
    }
    for (const frame of this.map.drawn.boundaries) {
      const wall = side < 0 ? frame.x : frame.x + frame.w;
      const gap = side * (wall - edge);
      if (gap > 0 && item.y >= frame.y && item.y <= frame.y + frame.h)
        room = Math.min(room, gap - 6);
    }
    return Math.max(0, room);
  }

  /** @param {Component} a @param {Component} b */
  widestLabelBetween(a, b) {
    const between = this.map.drawn.connections.filter(
      (each) =>
        (each.from === a.id && each.to === b.id) || (each.from === b.id && each.to === a.id),
    );
    return Math.max(
      0,
      ...between.map((each) => textWidth(each.label ?? "", this.sizes.small, 500)),
    );
  }

  /** @param {any} box */
  layBox(box) {
    const { item, geo } = box;
    const { small, big } = this.sizes;
    const { x, y, w, h } = geo;
    frameAt(box.ring, x - 5, y - 5, w + 10, h + DRAWER + 9);
    frameAt(box.pulse, x - 4, y - 4, w + 8, h + 8);
    frameAt(box.card, x, y, w, h);
    box.drawer.setAttribute("d", drawerPath(x, y + h, w));
    box.spine.setAttribute("d", spinePath(x, y, h));
    frameAt(box.rail, x + 1, y + h - 1.5, w - 2, 3);
    box.fill.setAttribute("x", String(x + 1));
    box.fill.setAttribute("y", String(y + h - 1.5));
    box.spark.setAttribute("cx", String(x + w - 3));
    box.spark.setAttribute("cy", String(y + 3));
    const title = { node: box.title, text: item.label, size: big, weight: 650 };
    const lines = this.isTerse
      ? [title]
      : [
          { node: box.tag, text: item.tag, size: small, weight: 600 },
          title,
          { node: box.sub, text: item.sublabel, size: small, weight: 400 },
        ].filter((line) => line.text);
    const room = Math.max(1, Math.floor(h / (small + 3)));
    while (lines.length > room)
      lines.splice(
        lines.findIndex((line) => line.node !== box.title),
        1,
      );
    for (const node of [box.tag, box.title, box.sub]) node.textContent = "";
    const { isPath } = this.map.drawn;
    const sign = isPath && box.opener ? PATH_SIGN : 0;
    const taken = 17 + sign + (isPath && box.flag ? PATH_FLAG : 0);
    const step = Math.min(big + 5, h / lines.length);
    const top = y + h / 2 - ((lines.length - 1) * step) / 2;
    lines.forEach((line, row) => {
      const wide = textWidth(line.text, line.size, line.weight);
      const least = isPath ? 1 : TIGHTEST;
      const size = line.size * Math.min(1, Math.max(least, (w - taken) / wide));
      place(line.node, x + 12, top + row * step + size * 0.36, size);
      line.node.textContent = cut(line.text, w - taken, size, line.weight);
    });
    const rows = rowsOf(item.label, big)[1];
    if (this.isTerse && rows && textWidth(item.label, big, 650) > w - taken) {
      const texts = rows.map((text) => cut(text, w - taken, big, 650));
      place(box.title, x + 12, y + h / 2 - 2, big);
      writeRows(box.title, texts, x + 12, y + h / 2 - 2, big + 3);
    }
    place(box.live, x + 11, y + h + DRAWER / 2 + 1 + small * 0.36, small);
    placeOpener(box.opener, geo, sign);
    placeClaimFlag(box.flag, geo, small, isPath ? sign : null);
    box.shown = "";
  }

  /** @param {any} line */
  layLine(line) {
    const { small } = this.sizes;
    const { item, name, quantity } = line;
    const points = this.trimmed(item);
    const path = roundedPath(points);
    line.hit.setAttribute("d", path);
    line.shaft.setAttribute("d", path);
    line.track.setAttribute("d", path);
    line.tip.setAttribute("d", tipPath(points));
    line.length = line.track.getTotalLength();
    line.points = points;
    const wide = Math.max(textWidth(item.label ?? "", small, 500), small * 3.4);
    line.spot = item.spot ?? labelSpot(item, points, wide, small);
    if (name.childElementCount) name.textContent = item.label ?? "";
    if (item.spot) name.textContent = cut(item.label ?? "", item.spot.room, small, 500);
    place(name, line.spot.x, line.spot.y, small);
    for (const node of [name, quantity]) node.setAttribute("text-anchor", line.spot.anchor);
  }

  /**
   * What travels is written beside the label, on the first place that hides nothing: in a row
   * above or below, moved aside where it must.
   * @param {any} line
   */
  layQuantity(line) {
    const { small } = this.sizes;
    const { spot, item } = line;
    if (item.spot) {
      // A path has a row for each, or the end of the label's.
      const wide = item.label ? textWidth(line.name.textContent, small, 650) + 9 : 0;
      const aside = spot.anchor === "end" ? -wide : wide;
      if (spot.inline) place(line.quantity, spot.x + aside, spot.y, small);
      else place(line.quantity, spot.x, spot.y + (item.label ? small + 3 : 0), small);
      return;
    }
    const step = small + 2.5;
    const rows = item.label ? [spot.away, -spot.away, 2 * -spot.away, 2 * spot.away] : [0];
    const { up = 0, down = 0 } = spot; // further rows of the label
    const places = (spot.anchor === "middle" ? ASIDE : [0]).flatMap((by) =>
      rows.map((row) => ({
        x: spot.x + by * small,
        y: spot.y + row * step + (row < 0 ? -up : down),
      })),
    );
    const areas = places.map(({ x, y }) =>
      textArea({ ...spot, x }, y, small * MOST_TRAVELS, small),
    );
    // On a static line nothing ever travels.
    const free = item.live ? areas.findIndex((area) => !this.hidesSomething(area, line)) : 0;
    const { x, y } = places[Math.max(0, free)];
    place(line.quantity, x, y, small);
  }

  /** @param {{x: number, y: number, w: number, h: number}} area @param {any} own */
  hidesSomething(area, own) {
    for (const box of this.map.boxes.values()) {
      const { x, y, w, h } = box.geo;
      if (overlap(area, { x, y, w, h: h + DRAWER })) return true;
    }
    if (this.borders.some((border) => overlap(area, border))) return true;
    return this.map.lines.some((line) => {
      if (line !== own && line.item.label) {
        const wide = textWidth(line.item.label, this.sizes.small, 500);
        if (overlap(area, textArea(line.spot, line.spot.y, wide, this.sizes.small))) return true;
      }
      return segmentsOf(line.points).some(({ a, b }) => overlap(area, hullOf(a, b)));
    });
  }
}
