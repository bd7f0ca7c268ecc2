// @ts-check
/**
 * Truth labels. A number on the page is measured (from the running engine), derived (computed
 * from measured ones by a formula that is shown) or illustrative (from the document, never from
 * the engine), and says which on hover.
 *
 * @typedef {"measured" | "derived" | "illustrative"} TruthKind
 */
import { setAttribute, setText } from "./dom.js";

const FROM_DOCUMENT = "from the document, not from this engine";

/**
 * An element that says on hover where its number comes from.
 * @param {TruthKind} kind
 * @param {string} how the formula, or what measured it
 * @param {string} [text] the number itself; without it the label is a small mark
 * @returns {HTMLSpanElement}
 */
export function truth(kind, how, text = "") {
  const span = document.createElement("span");
  span.className = "gb-truth";
  setTruth(span, kind, how, text);
  return span;
}

/**
 * The same for an element that stays while its number changes.
 * @param {Element} node @param {TruthKind} kind @param {string} how @param {string} [text]
 */
export function setTruth(node, kind, how, text) {
  if (!node.classList.contains("gb-truth")) node.classList.add("gb-truth");
  setAttribute(node, "data-truth", kind);
  setAttribute(node, "title", `${kind}: ${how}`);
  if (text !== undefined) setText(node, text);
}

/**
 * A text of the document, each figure in it labelled as what it is.
 * @param {string} text @returns {(string|HTMLSpanElement)[]}
 */
export function withFigures(text) {
  // A number that is not part of a name such as V1 or Llama-3, with its unit.
  const parts = text.split(/((?<![\w.-])\d[\d,.]*\d?(?:\s?(?:%|[kMGT]?B\b|×))?(?!\w))/);
  return parts.map((part, i) => (i % 2 ? truth("illustrative", FROM_DOCUMENT, part) : part));
}
