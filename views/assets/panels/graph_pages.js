// @ts-check
/** What attention read: a request's pages, in the order of reading, and where they lie. */
import { el, svg } from "../page/dom.js";
import { truth } from "../page/truth.js";
import { onRequestColour, requestColour } from "../words/colours.js";
import { bytes, plural, ranges } from "../words/format.js";

/** @import { Store } from "../core/store.js" */
/** @import { Model, PagesRead } from "./graph_model.js" */

const MAX_PAGES = 48;
const HEIGHT = 124;
/** Where the strip of the whole pool begins. */
const LOW = 92;

/**
 * @param {Store} store @param {Model} data @param {any} colours @param {number} width
 * @returns {Element[]}
 */
export function pagesParts(store, data, colours, width) {
  const { shown, all, chosen } = data.pages;
  const chips = all.map((item) => chip(store, item, shown?.request, colours.theme));
  const others = el("p", { class: "gbp-others" }, ...chips);
  if (!shown) {
    const text = all.length
      ? `${chosen} was not in this batch.`
      : data.nothingRan
        ? "Attention did not run in this step."
        : "Attention has not run in this step so far.";
    return [el("p", { class: "gbp-more", text }), others];
  }
  return [lead(shown, data, colours), walk(shown, data, colours, width), others];
}

/** @param {PagesRead} shown @param {Model} data @param {any} colours */
function lead(shown, data, colours) {
  const pages = plural(shown.blocks.length, "page");
  const each = data.heads ? ` × ${plural(data.heads.perToken, "byte")} a token` : "";
  const how =
    `from the block table: ${pages} × ${plural(data.pages.blockSize, "token")}${each}; ` +
    "the kernel room below has the walk of a kernel itself";
  const context = `${plural(shown.num_tokens, "token")} of context`;
  const id = el("b", { class: "gbp-id", text: shown.request });
  id.style.color = requestColour(shown.request, colours.theme);
  return el(
    "p",
    { class: "gbp-lead" },
    id,
    " ",
    truth("derived", how, `${pages}, ${context}, ${bytes(shown.num_bytes)}`),
    el("span", { class: "gbp-tag", text: "derived from the block table" }),
  );
}

/**
 * @param {Store} store @param {{request: string, pages: number, bytes: number}} item
 * @param {string | undefined} shown @param {string} theme
 */
function chip(store, item, shown, theme) {
  const button = el("button", {
    type: "button",
    class: "gbp-chip",
    text: `${item.request}: ${item.pages}`,
    "aria-pressed": String(item.request === shown),
    title: `derived: ${plural(item.pages, "page")}, ${bytes(item.bytes)}, from the block table`,
  });
  button.style.color = requestColour(item.request, theme);
  button.addEventListener("click", () => store.select({ request: item.request }));
  return button;
}

/** @param {PagesRead} shown @param {Model} data @param {any} colours @param {number} width */
function walk(shown, data, colours, width) {
  const blocks = shown.blocks.slice(0, MAX_PAGES);
  const { pool } = data.pages;
  const small = { y: 119, class: "small", fill: colours.muted };
  const picture = svg(
    "svg",
    {
      class: "gbp-walk",
      width,
      height: HEIGHT,
      viewBox: `0 0 ${width} ${HEIGHT}`,
      role: "img",
      "aria-label": `${shown.request} reads ${ranges(shown.blocks, 12)} in this order`,
    },
    rect(1, LOW, width - 2, 12, 3, { fill: "none", stroke: colours.border }),
    ...blocks.map((block, i) => page(shown, data, colours, { block, i, width, of: blocks.length })),
    svg("text", { x: 2, ...small, text: `the pool, blocks 0 to ${pool - 1}` }),
  );
  if (shown.blocks.length > blocks.length) {
    const text = `the first ${blocks.length} of ${plural(shown.blocks.length, "page")}`;
    picture.append(svg("text", { x: width - 2, "text-anchor": "end", ...small, text }));
  }
  return picture;
}

/**
 * One page, the line to its place in the pool, and that place.
 * @param {PagesRead} shown @param {Model} data @param {any} colours
 * @param {{block: number, i: number, width: number, of: number}} where
 */
function page(shown, data, colours, { block, i, width, of }) {
  const { blockSize, pool } = data.pages;
  const size = Math.min(46, (width - 4) / of);
  const x = 2 + i * size;
  const at = 2 + ((block + 0.5) / pool) * (width - 4);
  const cell = Math.max(2, (width - 4) / pool - 1);
  const tokens = Math.max(0, Math.min(blockSize, shown.num_tokens - i * blockSize));
  const high = 28 * (tokens / blockSize);
  const fill = requestColour(shown.request, colours.theme);
  const round = Math.min(4, size / 4);
  const middle = x + size / 2;
  const text = `page ${i} is block ${block}: ${plural(tokens, "token")} of context`;
  const group = svg(
    "g",
    {},
    svg("title", { text: `${text} (derived from the block table)` }),
    svg("path", {
      d: `M ${middle} 42 C ${middle} 70, ${at} 62, ${at} ${LOW}`,
      fill: "none",
      stroke: fill,
      "stroke-width": 1.4,
      opacity: 0.6,
    }),
    rect(x + 1, 14, size - 3, 28, round, { fill, opacity: 0.2 }),
    rect(x + 1, 42 - high, size - 3, high, round, { fill }),
    rect(at - cell / 2, LOW + 1.5, cell, 9, Math.min(2, cell / 3), { fill }),
  );
  if (size <= 18) return group;
  const on = high > 0.55 * 28;
  const name = { x: middle - 0.5, "text-anchor": "middle" };
  const ink = on ? onRequestColour(colours.theme) : colours.text;
  group.append(
    svg("text", { ...name, y: 32, class: on ? "on" : "", fill: ink, text: block }),
    svg("text", { ...name, y: 9, class: "small", fill: colours.muted, text: i }),
  );
  return group;
}

/**
 * @param {number} x @param {number} y @param {number} width @param {number} height
 * @param {number} rx @param {Record<string, any>} paint
 */
function rect(x, y, width, height, rx, paint) {
  return svg("rect", { x, y, width: Math.max(0, width), height, rx, ...paint });
}
