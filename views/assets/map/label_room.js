// @ts-check
/**
 * Room for the names of the lines. Letters keep a least size on the screen, so on a small one they
 * are larger against boxes than the document took them for: a frame then stands nearer to what it
 * holds, and a name moves along its line, to its other side, or into two rows, until it is on no
 * box and border.
 */
import { svg } from "../page/dom.js";
import {
  DRAWER,
  frameAt,
  hullOf,
  overlap,
  place,
  round,
  segmentsOf,
  textArea,
  textWidth,
} from "./shapes.js";

/** @import { Area } from "../core/document.js" */
/** @import { ArchitectureMap } from "./map.js" */

const AIR = 3; // between a name and what it must not touch, in pixels
const PAD = 11; // between a frame and the boxes in it, where it gives room, in pixels
const FURTHEST = 48; // that a name moves along its line, in pixels
const STEP = 3;
export const MOST_TRAVELS = 4.2; // sizes of a letter that what travels is wide, at most
const WEIGHT = 650; // of a name that is lit, which is the widest
/** What it costs to lie on something or too near to it, or in two rows, in pixels of moving. */
const COSTS = { box: 4000, name: 1600, border: 500, line: 400, near: 120, rows: 8, across: 14 };

/**
 * Frames as wide as what they hold needs: the boxes as they are drawn, and the names between them.
 * @param {ArchitectureMap} map with its boxes and lines laid out, wide
 */
export function layFrames(map) {
  const pad = PAD / map.text.scale;
  const air = (AIR + 1) / map.text.scale;
  const boxes = [...map.boxes.values()];
  const order = map.frames
    .map((frame, i) => ({ frame, given: map.drawn.boundaries[i] }))
    .sort((a, b) => a.given.w * a.given.h - b.given.w * b.given.h);
  /** @type {{given: Area, area: Area}[]} */
  const laid = [];
  for (const { frame, given } of order) {
    const held = boxes.filter(({ item }) => holds(given, item));
    const ids = new Set(held.map(({ item }) => item.id));
    const inner = laid.filter((each) => holds(given, each.given)).map(({ area }) => area);
    const content = [...held.map(({ geo }) => geo), ...inner];
    const names = map.lines
      .filter(({ item }) => item.label && ids.has(item.from) && ids.has(item.to))
      .map((line) => nameArea(line, map.text.sizes.small, MOST_TRAVELS));
    const right = (/** @type {Area} */ { x, w }) => x + w;
    let from = Math.max(given.x, Math.min(...content.map(({ x }) => x)) - pad);
    let to = Math.min(right(given), Math.max(...content.map(right)) + pad);
    if (!content.length) [from, to] = [given.x, right(given)];
    // A name that has always stood on the border, of a line that leaves at the side, stays there.
    const room = 18 / map.text.scale;
    for (const name of names) {
      if (name.x - air > given.x - room) from = Math.min(from, name.x - air);
      if (right(name) + air < right(given) + room) to = Math.max(to, right(name) + air);
    }
    const area = { x: round(from), y: given.y, w: round(to - from), h: given.h };
    frameAt(frame.node.children[0], area.x, area.y, area.w, area.h);
    frame.text.setAttribute("x", String(area.x + 12));
    frame.room = area.w - 18;
    laid.push({ given, area });
  }
  return laid.map(({ area }) => area);
}

/** @param {Area} outer @param {Area} inner */
function holds(outer, inner) {
  const [x, y] = [inner.x + inner.w / 2, inner.y + inner.h / 2];
  const within = x > outer.x && x < outer.x + outer.w && y > outer.y && y < outer.y + outer.h;
  return within && inner.w * inner.h < outer.w * outer.h;
}

/**
 * @param {any} line @param {number} small @param {number} [least] sizes of a letter
 * @returns {Area}
 */
function nameArea(line, small, least = 0) {
  const wide = Math.max(textWidth(line.item.label, small, WEIGHT), least * small);
  return textArea(line.spot, line.spot.y, wide, small);
}

/**
 * Move each name that touches something to the nearest place where it does not.
 * @param {ArchitectureMap} map @param {Area[]} frames as they are drawn
 */
export function settleNames(map, frames) {
  const { scale, sizes } = map.text;
  const { small } = sizes;
  const grown = (/** @type {Area} */ { x, y, w, h }, by = AIR / scale) => {
    return { x: x - by, y: y - by, w: w + 2 * by, h: h + 2 * by };
  };
  const boxes = Array.from(map.boxes.values(), ({ geo }) => ({ ...geo, h: geo.h + DRAWER }));
  const borders = frames.flatMap(bordersOf);
  const near = [...boxes, ...borders].map((area) => grown(area));
  const titles = map.frames.map(({ text, label }) => {
    const at = { x: Number(text.getAttribute("x")), anchor: "start" };
    return textArea(at, Number(text.getAttribute("y")), textWidth(label, small, 600), small);
  });
  const shafts = map.lines.map((line) => segmentsOf(line.points).map(({ a, b }) => hullOf(a, b)));
  // A name along a level part of its line keeps clear of the parts that go up and down.
  const upright = shafts.map((areas, i) =>
    map.lines[i].spot?.line !== undefined
      ? areas.filter(({ w, h }) => h > w).map((area) => grown(area))
      : [],
  );
  const named = map.lines.filter(({ item }) => item.label);
  const others = new Map(named.map((line) => [line, [nameArea(line, small)]]));
  for (const line of named) {
    const own = map.lines.indexOf(line);
    const cost = (/** @type {Area[]} */ rows) => {
      const hits = (/** @type {Area[]} */ areas) =>
        areas.reduce((sum, area) => sum + Number(rows.some((row) => overlap(row, area))), 0);
      let sum = COSTS.box * hits(boxes) + COSTS.border * hits(borders);
      sum += COSTS.near * hits(near) + COSTS.name * hits(titles);
      for (const [other, areas] of others) if (other !== line) sum += COSTS.name * hits(areas);
      shafts.forEach((areas, i) => (sum += COSTS.line * hits(i === own ? upright[i] : areas)));
      return sum;
    };
    let least = cost(others.get(line) ?? []);
    if (least === 0) continue;
    let best = null;
    for (const place of placesOf(line, small, scale)) {
      if (place.cost >= least) continue;
      const sum = place.cost + cost(place.areas);
      if (sum < least) [best, least] = [place, sum];
    }
    if (!best) continue;
    others.set(line, best.areas);
    write(line, best, small);
  }
}

/** The four sides of a frame. @param {Area} area @returns {Area[]} */
export function bordersOf({ x, y, w, h }) {
  return [
    { x, y, w, h: 0 },
    { x, y: y + h, w, h: 0 },
    { x, y, w: 0, h },
    { x: x + w, y, w: 0, h },
  ];
}

/**
 * Where a name may stand: along its line, on either side of a level one, in one row or in two.
 * @param {any} line @param {number} small @param {number} scale
 */
function placesOf({ item, spot }, small, scale) {
  const here = placesBeside(item.label, spot, small, scale, 0);
  if (spot.line === undefined) return here.sort((a, b) => a.cost - b.cost);
  // A baseline lies below the middle of its letters.
  const y = 2 * spot.line - spot.y + 0.72 * small;
  const across = { ...spot, y, away: -spot.away };
  const there = placesBeside(item.label, across, small, scale, COSTS.across);
  return [...here, ...there].sort((a, b) => a.cost - b.cost);
}

/**
 * @param {string} label @param {any} spot @param {number} small @param {number} scale
 * @param {number} dearer
 */
function placesBeside(label, spot, small, scale, dearer) {
  const step = small + 1.5;
  const isFlat = spot.anchor === "middle";
  const found = [];
  for (const texts of rowsOf(label, small)) {
    const high = (texts.length - 1) * step;
    // The row that is next to a level line stays where it is; beside an upright one both share.
    const up = isFlat ? (spot.away < 0 ? high : 0) : high / 2;
    for (let by = -FURTHEST; by <= FURTHEST; by += STEP) {
      const x = spot.x + (isFlat ? by / scale : 0);
      const y = spot.y + (isFlat ? 0 : by / scale) - up;
      const areas = texts.map((text, row) =>
        textArea({ x, anchor: spot.anchor }, y + row * step, textWidth(text, small, WEIGHT), small),
      );
      const cost = Math.abs(by) + (texts.length - 1) * COSTS.rows + dearer;
      found.push({ x, y, up, down: high - up, away: spot.away, step, texts, areas, cost });
    }
  }
  return found;
}

/**
 * A name in one row and, where it has several words, in the two that are least wide.
 * @param {string} label @param {number} small size of its letters @returns {string[][]}
 */
export function rowsOf(label, small) {
  const words = label.split(" ");
  const pairs = words.slice(1).map((_, i) => [
    words.slice(0, i + 1).join(" "),
    words.slice(i + 1).join(" "),
  ]);
  const wide = (/** @type {string[]} */ rows) =>
    Math.max(...rows.map((row) => textWidth(row, small, WEIGHT)));
  pairs.sort((a, b) => wide(a) - wide(b));
  return [[label], ...pairs.slice(0, 1)];
}

/** @param {any} line @param {ReturnType<typeof placesOf>[number]} at @param {number} small */
function write(line, { x, y, up, down, away, step, texts }, small) {
  line.spot = { ...line.spot, x: round(x), y: round(y + up), up, down, away };
  place(line.name, x, y, small);
  if (texts.length > 1) writeRows(line.name, texts, x, y, step);
}

/**
 * A text in two rows.
 * @param {Element} node @param {string[]} texts @param {number} x @param {number} y of the first
 * @param {number} step from one to the other
 */
export function writeRows(node, texts, x, y, step) {
  const [first, second] = texts.map((text, row) =>
    svg("tspan", { x: round(x), y: round(y + row * step), text }),
  );
  // For those who read it as text: a space that takes no room.
  node.replaceChildren(first, svg("tspan", { "font-size": 0, text: " " }), second);
}
