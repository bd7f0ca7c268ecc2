// @ts-check
/**
 * Shapes of the map: paths, places and widths, computed from the document and the size of letters.
 */
import { el, svg } from "../page/dom.js";
import { fitted } from "../words/format.js";
import { kindText, lineText } from "../words/map.js";

/** @import { Area, Connection, PageDocument } from "../core/document.js" */
/** @import { Drawing, Section } from "./path.js" */

/** Height of the strip with the live line below a box. */
export const DRAWER = 21;
const MARGIN = 10;
const CORNER = 9;

/** @param {number} value */
export const round = (value) => Math.round(value * 10) / 10;

/**
 * The document where it says that things stand. The keyboard and those who listen meet the boxes
 * in the order in which a request does.
 * @param {PageDocument} page @returns {Drawing}
 */
export function placesOf(page) {
  const { components, boundaries, connections } = page;
  const ids = components.map((item) => item.id);
  const path = (page.request_path ?? []).filter((id) => ids.includes(id));
  const order = [...new Set([...path, ...ids])];
  return { bounds: boundsOf(page), components, boundaries, connections, order, isPath: false };
}

/** @param {PageDocument} page */
export function boundsOf(page) {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  const take = (/** @type {number} */ x, /** @type {number} */ y, w = 0, h = 0) => {
    left = Math.min(left, x);
    top = Math.min(top, y);
    right = Math.max(right, x + w);
    bottom = Math.max(bottom, y + h);
  };
  for (const { x, y, w, h } of page.components) take(x, y, w, h + DRAWER);
  for (const { x, y, w, h } of page.boundaries) take(x, y, w, h);
  for (const { points, label_at: at, label_size: size } of page.connections) {
    for (const [x, y] of points) take(x, y);
    if (at && size) take(at[0] - size[0] / 2, at[1] - size[1] / 2, size[0], size[1]);
  }
  return {
    x: left - MARGIN,
    y: top - MARGIN,
    w: right - left + 2 * MARGIN,
    h: bottom - top + 2 * MARGIN,
  };
}

/** Its title is a node of its own, above the lines. @param {Section} section */
export function makeFrame({ x, y, w, h, label, kind }) {
  const text = svg("text", { x: x + 12, y: y + 18, text: label });
  const part = { class: "gb-frame", "data-kind": kind };
  const node = svg("g", part, svg("rect", { x, y, width: w, height: h, rx: 12 }));
  return { node, title: svg("g", part, text), text, label, room: w - 24 };
}

/** @param {string} kind */
export function legendEntry(kind) {
  /** @type {Record<string, string>} */
  const tones = { region: "region", "security-group": "security", event: "event" };
  const mark = el("i", { "data-kind": kind, style: `--tone: var(--gb-${tones[kind] ?? kind})` });
  return el("li", {}, mark, kindText(kind));
}

/** @param {Connection} item @param {Map<string, any>} boxes */
export function lineTitle({ from, to, label, live }, boxes) {
  const name = (/** @type {string} */ id) => boxes.get(id)?.item.label ?? id;
  return lineText(name(from), name(to), label ?? "", Boolean(live));
}

/** @param {number} x @param {number} y @param {number} w */
export function drawerPath(x, y, w) {
  const r = 7;
  const [left, right, top, foot] = [x + 4, x + w - 4, y - 8, y + DRAWER];
  const corner = (/** @type {number} */ down) => `a${r} ${r} 0 0 0 ${r} ${down}`;
  return `M${left} ${top}V${foot - r}${corner(r)}H${right - r}${corner(-r)}V${top}z`;
}

/** @param {number} x @param {number} y @param {number} h */
export function spinePath(x, y, h) {
  return `M${x + 5} ${y}h-0a5 5 0 0 0 -5 5v${h - 10}a5 5 0 0 0 5 5z`;
}

/** @param {number[][]} points @returns {string} a path with round corners */
export function roundedPath(points) {
  let path = `M${points[0][0]} ${points[0][1]}`;
  for (let i = 1; i < points.length - 1; i += 1) {
    const [before, corner, after] = [points[i - 1], points[i], points[i + 1]];
    const radius = Math.min(CORNER, distance(before, corner) / 2, distance(corner, after) / 2);
    const a = towards(corner, before, radius);
    const b = towards(corner, after, radius);
    path += `L${a[0]} ${a[1]}Q${corner[0]} ${corner[1]} ${b[0]} ${b[1]}`;
  }
  const end = points[points.length - 1];
  const last = towards(end, points[points.length - 2], 3);
  return `${path}L${last[0]} ${last[1]}`;
}

/** @param {number[][]} points */
export function tipPath(points) {
  const end = points[points.length - 1];
  const base = towards(end, points[points.length - 2], 9);
  const [dx, dy] = [(end[1] - base[1]) / 2.2, (base[0] - end[0]) / 2.2];
  return `M${end[0]} ${end[1]}L${base[0] + dx} ${base[1] + dy}L${base[0] - dx} ${base[1] - dy}z`;
}

/** @param {number[]} a @param {number[]} b */
function distance(a, b) {
  return Math.hypot(b[0] - a[0], b[1] - a[1]);
}

/** @param {number[]} from @param {number[]} to @param {number} by */
function towards(from, to, by) {
  const length = distance(from, to) || 1;
  return [
    round(from[0] + ((to[0] - from[0]) * by) / length),
    round(from[1] + ((to[1] - from[1]) * by) / length),
  ];
}

/**
 * Where a label stands with letters of this size: it keeps the document's side of the line, and
 * the edge that is near the line stays where it was.
 * @param {Connection} item @param {number[][]} points @param {number} wide @param {number} size
 */
export function labelSpot(item, points, wide, size) {
  const [x, y] = item.label_at ?? midway(points);
  const { a, b } = nearestSegment(points, x, y);
  const flat = Math.abs(b[1] - a[1]) <= Math.abs(b[0] - a[0]);
  const baseline = y + size * 0.36;
  if (flat) {
    const away = y <= a[1] ? -1 : 1;
    const [low, high] = [Math.min(a[0], b[0]) + wide / 2 + 2, Math.max(a[0], b[0]) - wide / 2 - 2];
    const at = low > high ? (low + high) / 2 : clamp(x, low, high);
    return {
      x: round(at),
      y: baseline + away * Math.max(0, (size - 11) * 0.4),
      anchor: "middle",
      away,
      line: (a[1] + b[1]) / 2,
    };
  }
  const half = (item.label_size?.[0] ?? wide) / 2 - 4;
  if (x - half > a[0])
    return { x: round(Math.max(x - half, a[0] + 7)), y: baseline, anchor: "start", away: 1 };
  if (x + half < a[0])
    return { x: round(Math.min(x + half, a[0] - 7)), y: baseline, anchor: "end", away: 1 };
  return { x, y: baseline, anchor: "middle", away: 1 };
}

/** @param {number[][]} points */
function midway(points) {
  const { a, b } = longestSegment(points);
  return [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2 - 11];
}

/** @param {number[][]} points */
export function segmentsOf(points) {
  return points.slice(1).map((b, i) => ({ a: points[i], b }));
}

/** @param {number[][]} points */
function longestSegment(points) {
  return segmentsOf(points).reduce((best, next) =>
    distance(next.a, next.b) > distance(best.a, best.b) ? next : best,
  );
}

/** @param {number[][]} points @param {number} x @param {number} y */
function nearestSegment(points, x, y) {
  const far = (/** @type {{a: number[], b: number[]}} */ { a, b }) => {
    const length = (b[0] - a[0]) ** 2 + (b[1] - a[1]) ** 2 || 1;
    const part = clamp(((x - a[0]) * (b[0] - a[0]) + (y - a[1]) * (b[1] - a[1])) / length, 0, 1);
    return Math.hypot(a[0] + part * (b[0] - a[0]) - x, a[1] + part * (b[1] - a[1]) - y);
  };
  return segmentsOf(points).reduce((best, next) => (far(next) < far(best) ? next : best));
}

/** @param {Area} item */
export function centreOf(item) {
  return { x: item.x + item.w / 2, y: item.y + item.h / 2 };
}

/** @param {EventTarget|null} target @returns {string|null} */
export function boxIdOf(target) {
  const box = target instanceof Element ? target.closest("[data-component]") : null;
  return box?.getAttribute("data-component") ?? null;
}

/** @param {Element} node @param {number} x @param {number} y @param {number} size */
export function place(node, x, y, size) {
  node.setAttribute("x", String(round(x)));
  node.setAttribute("y", String(round(y)));
  node.setAttribute("font-size", String(round(size)));
}

/**
 * @param {{x: number, anchor: string}} spot @param {number} baseline @param {number} wide
 * @param {number} size
 */
export function textArea(spot, baseline, wide, size) {
  const shift = spot.anchor === "middle" ? wide / 2 : spot.anchor === "end" ? wide : 0;
  return { x: spot.x - shift, y: baseline - size * 0.78, w: wide, h: size * 0.95 };
}

/** @param {number[]} a @param {number[]} b */
export function hullOf(a, b) {
  return {
    x: Math.min(a[0], b[0]),
    y: Math.min(a[1], b[1]),
    w: Math.abs(a[0] - b[0]),
    h: Math.abs(a[1] - b[1]),
  };
}

/** @param {Area} a @param {Area} b */
export function overlap(a, b) {
  return a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
}

/** @param {Element} node @param {number} x @param {number} y @param {number} w @param {number} h */
export function frameAt(node, x, y, w, h) {
  for (const [name, value] of Object.entries({ x, y, width: w, height: h }))
    node.setAttribute(name, String(round(value)));
}

/** @param {number} value @param {number} low @param {number} high */
export function clamp(value, low, high) {
  return Math.min(Math.max(value, Math.min(low, high)), Math.max(low, high));
}

const pen = /** @type {CanvasRenderingContext2D} */ (
  document.createElement("canvas").getContext("2d")
);

/** @param {string} text @param {number} size @param {number} weight */
export function textWidth(text, size, weight) {
  pen.font = `${weight} 100px Inter, system-ui, sans-serif`;
  return (pen.measureText(text).width * size) / 100;
}

/** @param {string} text @param {number} room @param {number} size @param {number} weight */
export function cut(text, room, size, weight) {
  // Titles are set a little tighter than they are measured.
  return fitted(text, (part) => textWidth(part, size, weight) * 0.985 <= room);
}
