// @ts-check
/**
 * What the map is, its legend and its zoom buttons: in the map's lower left where the document
 * leaves room there, below the map otherwise.
 */
import { el } from "../page/dom.js";
import { MAP } from "../words/map.js";
import {
  DRAWER,
  hullOf,
  legendEntry,
  overlap,
  segmentsOf,
  textArea,
  textWidth,
} from "./shapes.js";

/** @import { Area } from "../core/document.js" */
/** @import { ArchitectureMap } from "./map.js" */

const MOST_SHARE = 0.47; // of the map's width
const LEAST_WIDTH = 240;
const WIDTHS = 10; // so many are tried, the widest first
const AIR = 6; // pixels between the foot and what is drawn
/** A page of no more pixels has the map as a path, its foot below, and no inspector near it. */
export const PHONE = 760;

/** What the map is called, and its legend. @param {ArchitectureMap} map */
export function fillFoot({ page, foot, zoomer }) {
  const types = new Set(page.components.map((item) => item.type));
  const kinds = new Set(page.boundaries.map((item) => item.kind));
  const entries = [...types, ...kinds].map((kind) => legendEntry(kind));
  const live = page.components.some((item) => item.live);
  if (live) entries.push(legendEntry("event"));
  foot.replaceChildren();
  if (page.meta?.subtitle) {
    foot.append(el("p", { class: "gb-subtitle", text: page.meta.subtitle }));
  }
  if (!live) {
    foot.append(el("p", { text: MAP.static }));
  }
  const legend = el("ul", { class: "gb-legend", "aria-label": MAP.legend }, ...entries);
  foot.append(el("div", { class: "gb-map-bar" }, legend, zoomer));
}

/** @param {ArchitectureMap} map after its texts were fitted */
export function placeFoot(map) {
  const { foot, stage, scroll } = map;
  const width = stage.clientWidth;
  if (!map.page || !width || !stage.clientHeight) return;
  const wide = width > PHONE && scroll.clientWidth >= width;
  const fits = wide ? freeWidth(map, width, stage.clientHeight) : 0;
  foot.classList.toggle("is-inside", fits > 0);
  foot.style.width = fits > 0 ? `${fits}px` : "";
}

/**
 * The widest foot that hides nothing; 0 where each would.
 * @param {ArchitectureMap} map @param {number} width @param {number} height
 */
function freeWidth(map, width, height) {
  const { foot, bounds } = map;
  const scale = Math.min(width / bounds.w, height / bounds.h);
  const [left, top] = [(width - bounds.w * scale) / 2, (height - bounds.h * scale) / 2];
  const drawn = obstacles(map);
  foot.classList.add("is-inside");
  const most = Math.floor(width * MOST_SHARE);
  for (let i = 0; i < WIDTHS; i += 1) {
    const wide = Math.round(most - ((most - LEAST_WIDTH) * i) / (WIDTHS - 1));
    foot.style.width = `${wide}px`;
    const high = foot.offsetHeight;
    const area = {
      x: bounds.x - left / scale,
      y: bounds.y + (height - top - high - AIR) / scale,
      w: (wide + AIR) / scale,
      h: (high + AIR) / scale,
    };
    if (high < height && !drawn.some((each) => overlap(area, each))) return wide;
  }
  return 0;
}

/** What is drawn, in the map's units. @param {ArchitectureMap} map @returns {Area[]} */
function obstacles(map) {
  const { small } = map.text.sizes;
  /** @type {Area[]} */
  const areas = [...map.drawn.boundaries];
  for (const { geo } of map.boxes.values()) areas.push({ ...geo, h: geo.h + DRAWER });
  for (const line of map.lines) {
    for (const { a, b } of segmentsOf(line.points)) areas.push(hullOf(a, b));
    if (!line.spot) continue;
    const wide = Math.max(textWidth(line.item.label ?? "", small, 650), small * 4.6);
    const y = Number(line.quantity.getAttribute("y"));
    areas.push(textArea(line.spot, line.spot.y, wide, small), textArea(line.spot, y, wide, small));
  }
  return areas;
}
