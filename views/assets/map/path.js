// @ts-check
/**
 * The map of a page too narrow for it: the same boxes one below the other, in the order in which
 * the view is read. A boundary is a section of the path; a connection between neighbours runs
 * straight from box to box, one that goes on further runs on a rail at the right, one that goes
 * back further on a rail at the left. Lengths are pixels.
 */
import { DRAWER } from "./shapes.js";

/** @import { Area, Boundary, Component, Connection } from "../core/document.js" */
/** @import { PageDocument, View } from "../core/document.js" */

/**
 * What of a document is drawn, and where: the document's own places, or those of a path.
 * @typedef {{bounds: Area, components: Component[], boundaries: Section[],
 *   connections: PlacedConnection[], order: string[], isPath: boolean}} Drawing
 * @typedef {Area & {kind: string, label: string}} Section
 * @typedef {Connection & {spot?: Spot}} PlacedConnection
 * @typedef {{x: number, y: number, anchor: string, away: number, room: number, inline: boolean}}
 *   Spot where a label begins or ends; `inline`: what travels stands on the same row
 */

/** Sizes of letters on a path, in pixels. */
export const PATH_LETTERS = { small: 13, big: 15.5 };
/** How wide the sign is with which a box of a path opens. */
export const PATH_SIGN = 48;

const LEAST_WIDE = 200; // while the page is laid out it may be next to nothing
const EDGE = 2; // from the picture's edge to the outermost section
const TOP = 10; // the same above the first box
const INSET = 7; // from a section to what is in it
const LANE = 13; // between two rails
const RAIL_AIR = 11; // between the boxes and the first rail
const MOST_RAILS = 0.22; // of the width, on one side
const HEIGHTS = [31, 36, 48, 66]; // of a box, by its number of rows
const ROW = 19; // of a label in a gap
const AIR = 9; // below a box, and above the next
const TIP = 9; // an arrow's
const TITLE = 25; // of a section
const CLOSE = 11; // below the last box of a section
const BACK_AT = 0.37; // of a box's width: where neighbours answer
const ON_AT = 0.5; // and where they ask
const BESIDE = 18; // between two lines of the same two neighbours
const LEFT_PORTS = [0.05, 0.2]; // where rails from further down end
const RIGHT_PORTS = [0.62, 0.93]; // and those from further up

/**
 * @typedef {{item: Connection, from: number, to: number, lane: number, port: number}} Way
 * `from`, `to`: places on the path; `lane`: the rail, counted from the boxes
 */

/**
 * The boxes in the order in which a view is read: as a request reaches them, what a boundary holds
 * together; the boxes of the view in its own order, on the places that they take in this.
 * @param {PageDocument} page @param {View|null} view @returns {string[]} ids
 */
function pathOrder(page, view) {
  const known = new Set(page.components.map((item) => item.id));
  const flow = (page.request_path ?? []).filter((id) => known.has(id));
  const frames = page.boundaries.map((item) => new Set(item.wraps));
  frames.sort((a, b) => b.size - a.size);
  const order = together([...new Set([...flow, ...known])], frames);
  const focus = [...new Set(view?.focus ?? [])].filter((id) => known.has(id));
  const chosen = new Set(focus);
  return order.map((id) => (chosen.has(id) ? /** @type {string} */ (focus.shift()) : id));
}

/** @param {string[]} ids @param {Set<string>[]} frames the widest first @returns {string[]} */
function together(ids, frames) {
  const left = new Set(ids);
  return ids.flatMap((id) => {
    if (!left.has(id)) return [];
    const at = frames.findIndex((members) => members.has(id));
    if (at < 0) return [id];
    const inside = ids.filter((each) => left.has(each) && frames[at].has(each));
    for (const each of inside) left.delete(each);
    return together(inside, frames.slice(at + 1));
  });
}

/**
 * @param {PageDocument} page @param {View|null} view @param {number} width in pixels
 * @returns {Drawing}
 */
export function pathOf(page, view, width) {
  return new Path(page, view, width).drawing();
}

class Path {
  /** @param {PageDocument} page @param {View|null} view @param {number} width */
  constructor(page, view, width) {
    this.page = page;
    this.width = Math.max(LEAST_WIDE, width);
    this.order = pathOrder(page, view);
    this.focus = view?.focus?.length ? new Set(view.focus) : null;
    const places = new Map(this.order.map((id, place) => [id, place]));
    this.items = new Map(page.components.map((item) => [item.id, item]));
    this.sections = page.boundaries.flatMap((item) => runsOf(item, places));
    this.sections.sort((a, b) => a.first - b.first || b.last - a.last);
    /** @type {Way[]} */
    this.ways = page.connections.map((item) => ({
      item,
      from: places.get(item.from) ?? 0,
      to: places.get(item.to) ?? 0,
      lane: 0,
      port: 0,
    }));
    const down = this.ways.filter(({ from, to }) => to > from + 1 || to === from);
    const up = this.ways.filter(({ from, to }) => to < from - 1);
    this.leftRails = railsFor(spread(up), this.width);
    this.rightRails = railsFor(spread(down), this.width);
    const depth = Math.max(0, ...this.sections.map((each) => this.depthOf(each) + 1));
    this.left = EDGE + depth * INSET + this.leftRails.wide;
    this.right = this.width - EDGE - depth * INSET - this.rightRails.wide;
    // Who ends at a box and who leaves it, by its place, so that no two of them cross.
    this.into = byPlace(down, "to", (way) => way.lane);
    this.back = byPlace(up, "to", (way) => -way.lane);
    this.out = byPlace(down, "from", (way) => -way.lane);
    this.outBack = byPlace(up, "from", (way) => way.lane);
    const alongside = this.ways.filter(({ from, to }) => Math.abs(from - to) === 1);
    this.ons = byPlace(
      alongside.filter(({ from, to }) => to > from),
      "from",
    );
    this.backs = byPlace(
      alongside.filter(({ from, to }) => to < from),
      "to",
    );
    for (const ways of [...this.into.values(), ...this.back.values()])
      for (const [port, way] of ways.entries()) way.port = port;
    /** @type {Area[]} by place */
    this.boxes = [];
    /** @type {number[]} by gap: where its rows begin */
    this.rows = [];
    this.height = 0;
  }

  /** How many sections a section stands in. @param {Run} run */
  depthOf(run) {
    return this.sections.filter(
      (other) =>
        other !== run &&
        other.first <= run.first &&
        other.last >= run.last &&
        (other.item.wraps.length > run.item.wraps.length ||
          (other.item.wraps.length === run.item.wraps.length &&
            this.sections.indexOf(other) < this.sections.indexOf(run))),
    ).length;
  }

  /** @returns {Drawing} */
  drawing() {
    const boundaries = this.stack();
    const { height } = this;
    return {
      bounds: { x: 0, y: 0, w: this.width, h: height },
      components: this.order.map((id, place) => ({
        .../** @type {Component} */ (this.items.get(id)),
        ...this.boxes[place],
      })),
      boundaries,
      connections: this.ways.map((way) => this.run(way)),
      order: this.order,
      isPath: true,
    };
  }

  /** Put the boxes one below the other, each with the gap above it. @returns {Section[]} */
  stack() {
    /** @type {Map<Run, number>} where a section begins */
    const begun = new Map();
    /** @type {Section[]} */
    const sections = [];
    let y = TOP;
    for (let place = 0; place <= this.order.length; place += 1) {
      for (const run of this.sections.filter((each) => each.last === place - 1).reverse()) {
        y += CLOSE;
        const top = begun.get(run) ?? 0;
        const inset = EDGE + this.depthOf(run) * INSET;
        const { kind, label } = run.item;
        sections.push({ kind, label, x: inset, y: top, w: this.width - 2 * inset, h: y - top });
      }
      if (place === this.order.length) break;
      y += place ? AIR : this.into.has(0) ? AIR : 0;
      this.rows[place] = y;
      y += this.rowsAbove(place) * ROW + (place ? TIP : 0);
      for (const run of this.sections.filter((each) => each.first === place)) {
        y += place || begun.size ? INSET : 0;
        begun.set(run, y);
        y += TITLE;
      }
      const h = this.heightOf(this.order[place]);
      this.boxes[place] = { x: this.left, y, w: this.right - this.left, h };
      y += h + DRAWER;
    }
    this.height = y + EDGE + RAIL_AIR / 2;
    return sections;
  }

  /**
   * How many labels stand in the gap above a box: of lines back from below, of neighbours, of
   * lines on from above.
   * @param {number} at its place
   */
  rowsAbove(at) {
    const back = this.back.get(at - 1)?.length ?? 0;
    return back + this.neighbourRows(at) + (this.into.get(at)?.length ?? 0);
  }

  /** Two for neighbours, the label and what travels. @param {number} at the lower one's place */
  neighbourRows(at) {
    const most = Math.max(
      this.ons.get(at - 1)?.length ?? 0,
      this.backs.get(at - 1)?.length ?? 0,
    );
    return 2 * most;
  }

  /** @param {string} id */
  heightOf(id) {
    const { sublabel, tag } = /** @type {Component} */ (this.items.get(id));
    if (this.focus && !this.focus.has(id)) return HEIGHTS[0];
    return HEIGHTS[1 + (sublabel ? 1 : 0) + (tag ? 1 : 0)];
  }

  /** @param {Way} way @returns {PlacedConnection} */
  run(way) {
    const { item, from, to } = way;
    if (to === from + 1) return this.neighbours(way, from, this.ons, ON_AT, "start");
    if (to === from - 1) return this.neighbours(way, to, this.backs, BACK_AT, "end");
    return to < from ? this.onRail(item, way, -1) : this.onRail(item, way, 1);
  }

  /**
   * @param {Way} way @param {number} upper the place of the upper box
   * @param {Map<number, Way[]>} all @param {number} at @param {"start"|"end"} anchor
   * @returns {PlacedConnection}
   */
  neighbours(way, upper, all, at, anchor) {
    const [above, below] = [this.boxes[upper], this.boxes[upper + 1]];
    const nth = (all.get(upper) ?? []).indexOf(way);
    const away = anchor === "start" ? 1 : -1;
    const x = above.x + above.w * at + away * nth * BESIDE;
    const ends = [
      [x, above.y + above.h + DRAWER],
      [x, below.y],
    ];
    const row = (this.back.get(upper)?.length ?? 0) + 2 * nth;
    const y = this.rows[upper + 1] + row * ROW + ROW * 0.72;
    const room = anchor === "start" ? this.right - x - 8 : x - this.left - 8;
    return {
      ...way.item,
      points: anchor === "start" ? ends : ends.reverse(),
      spot: { x: x + away * 7, y, anchor, away: 1, room, inline: false },
    };
  }

  /**
   * From the side of a box along a rail, and in the gap at the other box across to its edge.
   * @param {Connection} item @param {Way} way @param {-1|1} side @returns {PlacedConnection}
   */
  onRail(item, way, side) {
    const { from, to, lane, port } = way;
    const [start, end] = [this.boxes[from], this.boxes[to]];
    const beside = /** @type {Way[]} */ ((side > 0 ? this.out : this.outBack).get(from));
    const y = start.y + (start.h * (beside.indexOf(way) + 1)) / (beside.length + 1);
    const rails = side > 0 ? this.rightRails : this.leftRails;
    const edge = side > 0 ? this.right : this.left;
    const x = edge + side * (RAIL_AIR + lane * rails.lane);
    const ways = /** @type {Way[]} */ ((side > 0 ? this.into : this.back).get(to));
    const gap = side > 0 ? to : to + 1;
    const before =
      side > 0 ? (this.back.get(to - 1)?.length ?? 0) + this.neighbourRows(to) : 0;
    const row = this.rows[gap] + (before + port + 1) * ROW - 1;
    // Rows that come first end further in: no line crosses another that ends at the same box.
    const [low, high] = side > 0 ? RIGHT_PORTS : LEFT_PORTS;
    const part = ways.length > 1 ? port / (ways.length - 1) : 0.5;
    const ends = end.x + end.w * (low + (high - low) * part);
    return {
      ...item,
      points: [
        [edge, y],
        [x, y],
        [x, row],
        [ends, row],
        [ends, side > 0 ? end.y : end.y + end.h + DRAWER],
      ],
      spot: {
        x: edge - side * 4,
        y: row - 5.5,
        anchor: side > 0 ? "end" : "start",
        away: 1,
        room: this.right - this.left - 8,
        inline: true,
      },
    };
  }
}

/**
 * How far apart rails stand, and what room they take.
 * @param {number} lanes @param {number} width of the page
 */
function railsFor(lanes, width) {
  const room = width * MOST_RAILS - RAIL_AIR;
  const lane = Math.min(LANE, room / Math.max(1, lanes));
  return { lane, wide: lanes ? RAIL_AIR + lanes * lane : RAIL_AIR / 2 };
}

/** @typedef {{item: Boundary, first: number, last: number}} Run */

/**
 * The stretches of the path that a boundary holds: one where its boxes stand together.
 * @param {Boundary} item @param {Map<string, number>} places @returns {Run[]}
 */
function runsOf(item, places) {
  /** @type {Run[]} */
  const runs = [];
  const inside = item.wraps
    .map((id) => places.get(id) ?? -1)
    .filter((place) => place >= 0)
    .sort((a, b) => a - b);
  for (const place of inside) {
    const last = runs.at(-1);
    if (last?.last === place - 1) last.last = place;
    else runs.push({ item, first: place, last: place });
  }
  return runs;
}

/**
 * Give each way a rail of its own on the stretch that it runs, the shortest the nearest.
 * @param {Way[]} ways @returns {number} of rails
 */
function spread(ways) {
  /** @type {number[][][]} */
  const rails = [];
  const stretch = (/** @type {Way} */ { from, to }) =>
    from === to ? [from - 0.5, from] : [Math.min(from, to), Math.max(from, to)];
  const length = (/** @type {Way} */ { from, to }) => Math.abs(from - to);
  for (const way of [...ways].sort((a, b) => length(a) - length(b))) {
    const [low, high] = stretch(way);
    let lane = rails.findIndex((rail) => rail.every(([a, b]) => b <= low || a >= high));
    if (lane < 0) lane = rails.push([]) - 1;
    rails[lane].push([low, high]);
    way.lane = lane;
  }
  return rails.length;
}

/**
 * @param {Way[]} ways @param {"from"|"to"} end @param {(way: Way) => number} [key] of their order
 * @returns {Map<number, Way[]>}
 */
function byPlace(ways, end, key = () => 0) {
  /** @type {Map<number, Way[]>} */
  const found = new Map();
  for (const way of [...ways].sort((a, b) => key(a) - key(b)))
    found.set(way[end], [...(found.get(way[end]) ?? []), way]);
  return found;
}
