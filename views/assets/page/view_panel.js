// @ts-check
/**
 * Which panel a view has below the map: its own, or the one that shows most of the engine boxes
 * that it puts in focus. A view without any such box has none, and says so.
 */
import { el } from "./dom.js";

/** @import { PageDocument, View } from "../core/document.js" */

/** @typedef {{views: string, file: string, boxes: string[]}} Panel */

/** @type {Panel[]} the view that has it as its own, and the engine boxes that it shows */
const PANELS = [
  {
    views: "request-lifecycle",
    file: "../panels/lifecycle.js",
    boxes: ["client-req", "async-engine", "scheduler"],
  },
  {
    views: "block-allocation",
    file: "../panels/blocks.js",
    boxes: ["block-manager", "physical-vram"],
  },
  {
    views: "cuda-acceleration",
    file: "../panels/graph.js",
    boxes: ["gpu-runner", "cuda-graph", "paged-attn", "shared-gqa"],
  },
];

export const PANEL_FILES = PANELS.map(({ file }) => file);

/**
 * @param {PageDocument} page @param {View|null} view
 * @returns {string} the module of the panel, "" where nothing of the view is live
 */
export function panelOf(page, view) {
  const focus = new Set(view?.focus ?? []);
  const live = page.components.filter((box) => box.live && (!view || focus.has(box.id)));
  if (!live.length) return "";
  const own = PANELS.find((panel) => panel.views === view?.id);
  if (own) return own.file;
  const shown = (/** @type {Panel} */ panel) =>
    live.filter((box) => panel.boxes.includes(/** @type {string} */ (box.live))).length;
  return PANELS.reduce((best, next) => (shown(next) > shown(best) ? next : best)).file;
}

/**
 * What stands in the panel's place where there is none.
 * @param {PageDocument} page @param {(() => void)|undefined} goHome
 */
export function staticNotice(page, goHome) {
  const what = page.live ? "No box of this view" : "No box of this document";
  return el(
    "div",
    { class: "gb-empty" },
    el(
      "div",
      {},
      el("p", {
        text:
          `${what} is a part of the engine, so there is nothing here to measure. ` +
          "Your engine goes on all the same.",
      }),
      goHome && !page.live
        ? el("button", {
            class: "gb-button",
            type: "button",
            text: "Back to the engine's own map",
            onclick: goHome,
          })
        : null,
    ),
  );
}
