// @ts-check
/** What attention read: a request's pages, in the order of reading, and where they lie. */
import { el, reconcile, setAttribute, setText, svg } from "../page/dom.js";
import { truth } from "../page/truth.js";
import { onRequestColour, requestColour } from "../words/colours.js";
import { bytes, plural, ranges } from "../words/format.js";
import { GRAPH } from "../words/graph.js";
import { remake } from "./parts.js";

/** @import { Store } from "../core/store.js" */
/** @import { Palette } from "./canvas.js" */
/** @import { Model, PagesRead as Shown } from "./graph_model.js" */

const MAX_PAGES = 48;
const HEIGHT = 124;
/** Where the strip of the whole pool begins. */
const LOW = 92;

/** Most of it stays from step to step: only pages and chips that have changed are made anew. */
export class PagesRead {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.lead = el("div");
    this.walk = el("div");
    this.others = el("p", { class: "gbp-others" });
    this.element = el("div", {}, this.lead, this.walk, this.others);
    this.pages = svg("g");
  }

  /** @param {Model} data @param {Palette} colours @param {number} width */
  update(data, colours, width) {
    const { store } = this;
    const { pages, heads, nothingRan } = data;
    const { shown, all, chosen, blockSize } = pages;
    const trace = store.header?.trace_id; // its requests' colours are its own
    const look = [trace, colours.theme];
    const none = shown ? null : [chosen, all.length > 0, nothingRan];
    remake(this.lead, [look, shown, none, heads?.perToken, blockSize], () => [
      shown ? lead(shown, data, colours) : noneRead(data),
    ]);
    this.drawWalk(data, colours, width, look);
    reconcile(
      this.others,
      all,
      ({ request }) => `${trace} ${request}`,
      ({ request }) => chip(store, request),
      (node, item) => fillChip(node, item, shown?.request, colours.theme),
    );
  }

  /** @param {Model} data @param {Palette} colours @param {number} width @param {unknown[]} look */
  drawWalk(data, colours, width, look) {
    const { shown, pool } = data.pages;
    const blocks = shown?.blocks.slice(0, MAX_PAGES) ?? [];
    remake(this.walk, shown && [look, shown.request, shown.blocks, pool, width], () => {
      this.pages = svg("g");
      return shown ? [walk(shown, this.pages, pool, colours, width)] : [];
    });
    if (!shown) return;
    reconcile(
      this.pages,
      blocks.map((block, i) => ({ block, i, width, of: blocks.length })),
      ({ i }) => `${i} ${tokensOn(shown, data, i)}`,
      (place) => page(shown, data, colours, place),
    );
  }
}

/** @param {Model} data */
function noneRead({ pages: { all, chosen }, nothingRan }) {
  const text = all.length
    ? `${chosen} was not in this batch.`
    : nothingRan
      ? GRAPH.noPages
      : GRAPH.noPagesYet;
  return el("p", { class: "gbp-more", text });
}

/** @param {Shown} shown @param {Model} data @param {Palette} colours */
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

/** @param {Store} store @param {string} request */
function chip(store, request) {
  return el("button", {
    type: "button",
    class: "gbp-chip",
    onclick: () => store.select({ request }),
  });
}

/**
 * @param {HTMLElement} button @param {{request: string, pages: number, bytes: number}} item
 * @param {string | undefined} shown @param {string} theme
 */
function fillChip(button, { request, pages, bytes: size }, shown, theme) {
  setText(button, `${request}: ${pages}`);
  setAttribute(button, "aria-pressed", String(request === shown));
  const how = `derived: ${plural(pages, "page")}, ${bytes(size)}, from the block table`;
  setAttribute(button, "title", how);
  const colour = requestColour(request, theme);
  if (button.dataset.colour === colour) return;
  button.dataset.colour = colour;
  button.style.color = colour;
}

/**
 * The pool, and room for the pages that were read from it.
 * @param {Shown} shown @param {SVGElement} pages @param {number} pool in blocks
 * @param {Palette} colours @param {number} width
 */
function walk(shown, pages, pool, colours, width) {
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
    pages,
    svg("text", { x: 2, ...small, text: `the pool, blocks 0 to ${pool - 1}` }),
  );
  if (shown.blocks.length > MAX_PAGES) {
    const text = `the first ${MAX_PAGES} of ${plural(shown.blocks.length, "page")}`;
    picture.append(svg("text", { x: width - 2, "text-anchor": "end", ...small, text }));
  }
  return picture;
}

/**
 * How many tokens of a page were read.
 * @param {Shown} shown @param {Model} data @param {number} i
 */
function tokensOn(shown, { pages: { blockSize } }, i) {
  return Math.max(0, Math.min(blockSize, shown.num_tokens - i * blockSize));
}

/**
 * One page, the line to its place in the pool, and that place.
 * @param {Shown} shown @param {Model} data @param {Palette} colours
 * @param {{block: number, i: number, width: number, of: number}} where
 */
function page(shown, data, colours, { block, i, width, of }) {
  const { blockSize, pool } = data.pages;
  const size = Math.min(46, (width - 4) / of);
  const x = 2 + i * size;
  const at = 2 + ((block + 0.5) / pool) * (width - 4);
  const cell = Math.max(2, (width - 4) / pool - 1);
  const tokens = tokensOn(shown, data, i);
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
