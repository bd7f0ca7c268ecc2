// @ts-check
/** Query heads that share a KV head, and what that saves. */
import { el, svg } from "../page/dom.js";
import { truth } from "../page/truth.js";
import { bytes, plural } from "../words/format.js";

/** @import { Model } from "./graph_model.js" */

/** As many KV heads, and query heads of each, as can be told apart. */
const MOST = 8;
const SHAPE_HOW = "the loaded model's configuration";

/** @param {Model["heads"]} heads @param {any} colours @param {number} width @returns {Element[]} */
export function headsParts(heads, colours, width) {
  if (!heads) {
    const text = "This trace ran no model: there is no shape to show.";
    return [el("p", { class: "gbp-more", text })];
  }
  const { layers, kv, dim, perToken, query, group } = heads;
  const elements = layers && dim ? 2 * layers * kv * dim : 0;
  const formula = elements
    ? `2 (K and V) × ${plural(layers, "layer")} × ${plural(kv, "KV head")} × ${dim} × ` +
      plural(perToken / elements, "byte")
    : "from the model's shape";
  const times = `${Number(group.toFixed(2))} times`;
  const without = `${bytes(perToken)} × ${query} / ${kv}`;
  return [
    picture(heads, colours, width),
    ...cutNote(heads),
    el(
      "p",
      { class: "gbp-shape" },
      truth("derived", formula, `${bytes(perToken)} of KV a token`),
      ", ",
      truth("measured", SHAPE_HOW, formula),
      ".",
    ),
    el(
      "p",
      { class: "gbp-more" },
      "With a KV head for each query head: ",
      truth("derived", without, bytes(perToken * group)),
      ", ",
      truth("derived", `query heads ÷ KV heads = ${query} ÷ ${kv}`, times),
      " as much to store and to read.",
    ),
  ];
}

/** @param {NonNullable<Model["heads"]>} heads @returns {Element[]} */
function cutNote({ kv, group }) {
  const each = Math.ceil(group);
  const words = [];
  if (kv > MOST) words.push(`the first ${MOST} of ${plural(kv, "KV head")}`);
  if (each > MOST) words.push(`the first ${MOST} of ${plural(each, "query head")} on each`);
  if (!words.length) return [];
  const text = `Drawn: ${words.join(", ")}.`;
  return [el("p", { class: "gbp-more" }, truth("measured", SHAPE_HOW, text))];
}

/** @param {NonNullable<Model["heads"]>} heads @param {any} colours @param {number} width */
function picture({ query, kv, group }, colours, width) {
  const groups = Math.min(kv, MOST);
  const per = Math.min(Math.ceil(group), MOST);
  const room = width / groups;
  const share = `${Number(group.toFixed(2))} of them on each of ${plural(kv, "KV head")}`;
  const drawing = svg("svg", {
    class: "gbp-headmap",
    width,
    height: 96,
    viewBox: `0 0 ${width} 96`,
    role: "img",
    "aria-label": `${plural(query, "query head")}, ${share}`,
  });
  for (let head = 0; head < groups; head += 1) {
    const middle = head * room + room / 2;
    for (let q = 0; q < per; q += 1) {
      const x = middle + (q - (per - 1) / 2) * Math.min(34, (room - 12) / per);
      const r = Math.max(1, Math.min(11, (room - 12) / per / 2 - 1));
      drawing.append(...queryHead(x, r, middle, Math.round(head * group + q), colours));
    }
    drawing.append(...kvHead(middle, Math.min(room - 10, 76), head, colours));
  }
  return drawing;
}

/**
 * @param {number} x @param {number} r @param {number} to the middle of its KV head
 * @param {number} number @param {any} colours
 */
function queryHead(x, r, to, number, colours) {
  const stroke = { fill: "none", stroke: colours.cloud };
  const path = `M ${x} ${18 + r} C ${x} 50, ${to} 44, ${to} 66`;
  const parts = [
    svg("path", { d: path, ...stroke, "stroke-width": 1.3, opacity: 0.55 }),
    svg("circle", { cx: x, cy: 18, r, ...stroke, "stroke-width": 1.5 }),
  ];
  const text = { x, y: 21.5, "text-anchor": "middle", class: "small", fill: colours.text };
  if (r > 8) parts.push(svg("text", { ...text, text: number }));
  return parts;
}

/** @param {number} middle @param {number} side @param {number} number @param {any} colours */
function kvHead(middle, side, number, colours) {
  const box = { x: middle - side / 2, y: 66, width: side, height: 26, rx: 5 };
  const text = { x: middle, y: 83, "text-anchor": "middle", fill: colours.text };
  return [
    svg("rect", { ...box, fill: colours.database, opacity: 0.16 }),
    svg("rect", { ...box, fill: "none", stroke: colours.database }),
    svg("text", { ...text, text: side > 44 ? `KV ${number}` : number }),
  ];
}
