// @ts-check
/** Marks beside texts of the document that say, or speak of, what is often said of vLLM. */
import { VERDICT_TONES, markName, markTitle } from "../words/claims.js";
import { el } from "./dom.js";

/** @import { ClaimMark } from "../core/document.js" */

/** Asks whoever has the claims to show some; it bubbles out of where the mark stands. */
export const ASKS_FOR_CLAIMS = "gb-claims";

/** @typedef {{numbers: number[], about: string, first: number}} Asked */

/**
 * One button for each claim; nothing where there is none.
 * @param {ClaimMark[]|undefined} marks @param {string} about what they stand beside
 * @param {string} [title] before them, where they stand by themselves
 */
export function claimMarks(marks, about, title = "") {
  if (!marks?.length) return null;
  const numbers = [...new Set(marks.map((mark) => mark.claim))];
  const buttons = marks.map((mark) =>
    el("button", {
      class: "gb-claim-mark",
      type: "button",
      "data-tone": mark.said ? VERDICT_TONES[mark.verdict] : "",
      "aria-label": markName(mark),
      title: markTitle(mark),
      text: String(mark.claim),
      onclick: (/** @type {Event} */ event) =>
        ask(/** @type {Element} */ (event.target), { numbers, about, first: mark.claim }),
    }),
  );
  return el("span", { class: "gb-claim-marks" }, title && el("small", { text: title }), ...buttons);
}

/** @param {Element} from @param {Asked} detail */
export function ask(from, detail) {
  from.dispatchEvent(new CustomEvent(ASKS_FOR_CLAIMS, { bubbles: true, composed: true, detail }));
}
