// @ts-check
/** The dispatcher's table: of which sizes there is a graph, and where this step's batch fell. */
import { el } from "../page/dom.js";
import { truth } from "../page/truth.js";
import { plural } from "../words/format.js";

/** @import { SizesView, SizeKey } from "./graph_model.js" */

const HOW = "the dispatcher of this engine, as the log's state has it";
const FOR = /** @type {Record<string, string>} */ ({
  FULL: "attention inside",
  PIECEWISE: "attention between the pieces",
});

/** @param {SizesView} view @returns {HTMLElement[]} */
export function sizesParts(view) {
  if (!view.modes.length) return [];
  const { fell } = view;
  const rest = view.largest
    ? `larger than ${view.largest}: eager`
    : "no sizes: every batch runs eagerly";
  const none = chip(rest, fell?.mode === "NONE" ? ["is-taken"] : [], "no graph is captured so");
  const eager = fell?.mode === "NONE" && fell.tokens <= view.largest ? "this batch: eager" : rest;
  none.textContent = eager;
  return [
    el(
      "p",
      { class: "gbp-more" },
      "cudagraph_mode ",
      truth("measured", HOW, view.mode),
      view.queryLen > 1
        ? `, a decode has ${plural(view.queryLen, "row")} (1 + num_speculative_tokens)`
        : "",
      ". A batch takes the smallest size that holds it; filled ones are captured.",
    ),
    el(
      "dl",
      { class: "gbp-sizes" },
      ...view.modes.flatMap(({ mode, decodeOnly, keys }) => [
        el(
          "dt",
          {},
          el("code", { text: mode }),
          el("small", { text: `${decodeOnly ? "uniform decodes" : "any batch"}, ${FOR[mode]}` }),
        ),
        el("dd", {}, ...keys.map((key) => sizeChip(mode, key, view))),
      ]),
      el("dt", {}, el("code", { text: "NONE" }), el("small", { text: "no graph" })),
      el("dd", {}, none),
    ),
  ];
}

/** @param {string} mode @param {SizeKey} key @param {SizesView} view */
function sizeChip(mode, key, { fell }) {
  const taken = fell?.mode === mode && fell.padded === key.size;
  const padding = taken ? key.size - fell.tokens : 0;
  const text = padding ? `${key.size} = ${fell?.tokens} + ${padding} padding` : String(key.size);
  const requests = key.requests === null ? "any requests" : plural(key.requests, "request");
  const state = key.captured ? "captured" : "captured when it is first needed";
  const classes = [key.captured ? "is-captured" : "", taken ? "is-taken" : ""];
  return chip(text, classes, `${plural(key.size, "row")}, ${requests}: ${state}`);
}

/** @param {string} text @param {string[]} classes @param {string} title */
function chip(text, classes, title) {
  return el("span", { class: ["gbp-size", ...classes].join(" ").trim(), title, text });
}
