// @ts-check
/** How the engine's memory was divided when it started: a bar to scale, its parts, what follows. */
import { bytes } from "../words/format.js";
import { budgetText, cacheRows, lengthText, memoryParts } from "../words/memory.js";
import { el, reconcile, setAttribute, setText } from "./dom.js";
import { fillRows } from "./inspector_rows.js";
import { setTruth, truth } from "./truth.js";

/** @import { MemoryPart } from "../words/memory.js" */
/** @import { Store } from "../core/store.js" */

/** Nothing is shown where the log has no memory_sized, with which that of a model begins. */
export class MemorySizedPart {
  constructor() {
    this.said = el("p", { class: "gb-note-small" });
    this.bar = el("div", { class: "gb-memory-bar", "aria-hidden": "true" });
    this.parts = el("dl", { class: "gb-rows gb-memory-parts" });
    this.rows = el("dl", { class: "gb-rows" });
    this.length = el("p", { class: "gb-note-small" });
    this.element = el(
      "section",
      { "aria-label": "This engine's memory" },
      el("h3", { text: "This engine's memory" }),
      this.said,
      this.bar,
      this.parts,
      this.rows,
      this.length,
    );
  }

  /** @param {Store} store */
  update(store) {
    const first = /** @type {any} */ (store.records[0]);
    const event = store.cursor >= 0 && first?.type === "memory_sized" ? first : null;
    this.element.hidden = !event;
    if (!event) return;
    const parts = memoryParts(event.facts, store.state?.graphs);
    const all = parts.reduce((sum, part) => sum + part.bytes, 0);
    setText(this.said, budgetText(event.facts));
    reconcile(
      this.bar,
      parts,
      (part) => part.name,
      (part) => el("i", { "data-part": part.name }),
      (node, part) => {
        node.style.flexGrow = String(part.bytes / all);
        setAttribute(node, "title", `${part.name} ${bytes(part.bytes)}`);
      },
    );
    reconcile(this.parts, parts, (part) => part.name, makePart, fillPart);
    fillRows(this.rows, cacheRows(event.facts));
    setText(this.length, lengthText(event.facts, event.reason));
  }
}

/** @param {MemoryPart} part */
function makePart(part) {
  return el(
    "div",
    { class: "gb-row" },
    el("dt", {}, el("i", { "data-part": part.name, "aria-hidden": "true" }), part.name),
    el("dd", {}, truth(part.truth, part.how, "")),
  );
}

/** @param {HTMLElement} node @param {MemoryPart} part */
function fillPart(node, part) {
  const unknown = part.bytes === 0 && part.how.startsWith("not measured");
  const figure = /** @type {Element} */ (node.lastElementChild?.firstElementChild);
  setTruth(figure, part.truth, part.how, unknown ? "not measured" : bytes(part.bytes));
}
