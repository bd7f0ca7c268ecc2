// @ts-check
/** What a map is put together from: the nodes of a box and of a connection. */
import { svg } from "../page/dom.js";
import { boxText } from "../words/map.js";
import { openText } from "../words/rooms.js";
import { makeClaimFlag } from "./claim_flag.js";
import { DRAWER, lineTitle } from "./shapes.js";

/** @import { Area, Component } from "../core/document.js" */
/** @import { PlacedConnection } from "./path.js" */

/** Two arrows apart, in a square of 16. */
const OPEN = "M9 2h5v5h-2V5.4L9.4 8 8 6.6 10.6 4H9zM7 14H2V9h2v1.6L6.6 8 8 9.4 5.4 12H7z";
/** The sign on the drawer of a box. */
const SIGN = { w: 22, h: DRAWER, icon: 12 };

/** @param {Component} item */
export function makeBox(item) {
  const parts = {
    hover: svg("title", { text: boxText(item) }),
    ring: svg("rect", { class: "ring", rx: 12 }),
    pulse: svg("rect", { class: "pulse", rx: 12 }),
    drawer: svg("path", { class: "drawer" }),
    card: svg("rect", { class: "card", rx: 8 }),
    spine: svg("path", { class: "spine" }),
    rail: svg("rect", { class: "rail", height: 3 }),
    fill: svg("rect", { class: "fill", height: 3, width: 0 }),
    tag: svg("text", { class: "tag" }),
    title: svg("text", { class: "title" }),
    sub: svg("text", { class: "sub" }),
    live: svg("text", { class: "live" }),
    spark: svg("circle", { class: "spark", r: 5.5, visibility: "hidden" }),
  };
  const node = svg(
    "g",
    {
      class: item.live ? "gb-box" : "gb-box is-static",
      "data-component": item.id,
      "data-type": item.type,
      role: "button",
      tabindex: 0,
      "aria-pressed": "false",
    },
    parts.hover,
    ...Object.values(parts).slice(1),
  );
  const flag = makeClaimFlag(item);
  return { item, node, ...parts, opener: makeOpener(item), flag, geo: item, shown: "" };
}

/**
 * @param {PlacedConnection} item
 * @param {Map<string, any>} boxes by the document's id
 */
export function makeLine(item, boxes) {
  const hover = svg("title", { text: lineTitle(item, boxes) });
  const hit = svg("path", { class: "hit" });
  const shaft = svg("path", { class: "shaft" });
  // Beside the page: asked for a point, a path in it makes the browser lay out the whole page.
  const track = svg("path");
  const tip = svg("path", { class: "tip" });
  const node = svg(
    "g",
    { class: "gb-line", "data-connection": item.id, "data-variant": item.variant ?? "default" },
    hover,
    hit,
    shaft,
    tip,
  );
  if (item.width) node.style.setProperty("--width", String(item.width));
  const name = svg("text", { class: "gb-name", text: item.label ?? "" });
  const quantity = svg("text", { class: "gb-quantity" });
  const texts = svg("g", { "pointer-events": "none" }, name, quantity);
  return { item, node, hover, hit, shaft, track, tip, name, quantity, texts, length: 0 };
}

/**
 * Opens a box. It is for the pointer, and for those who listen; by keyboard, Enter on a selected
 * box does the same. @param {Component} item @returns {SVGElement|null} null: nothing is inside
 */
function makeOpener(item) {
  if (!item.live) return null;
  return svg(
    "g",
    {
      class: "gb-open",
      "data-open": item.id,
      role: "button",
      tabindex: -1,
      "aria-label": openText(item.label),
    },
    svg("title", { text: openText(item.label) }),
    svg("rect"),
    svg("path", { d: OPEN }),
  );
}

/**
 * On the drawer's end; where there is a width, as high as box and drawer, for a finger.
 * @param {SVGElement|null} opener @param {Area} box @param {number} [wide] in the map's units
 */
export function placeOpener(opener, { x, y, w, h }, wide) {
  if (!opener) return;
  const sign = wide ? { w: wide, h: h + DRAWER, icon: 17 } : SIGN;
  const [left, top] = wide ? [x + w - wide, y] : [x + w - 27, y + h];
  opener.setAttribute("transform", `translate(${left} ${top})`);
  const [rect, path] = [opener.children[1], opener.children[2]];
  rect.setAttribute("width", String(sign.w));
  rect.setAttribute("height", String(sign.h));
  const dx = (sign.w - sign.icon) / 2;
  const dy = ((wide ? h : sign.h) - sign.icon) / 2;
  path.setAttribute("transform", `translate(${dx} ${dy}) scale(${sign.icon / 16})`);
}
