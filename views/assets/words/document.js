// @ts-check
/** What is said of a document that is not drawn, because it has errors. */
import { plural, shortened } from "./format.js";

/** @import { RefusedDocument } from "../core/document.js" */

export const DOCUMENT = {
  show: "Show the box",
};

/**
 * Which document it is, and the first place; the others are in the menu Document.
 * @param {RefusedDocument} refused @returns {{text: string, box: string|null}} `box`: of the place
 */
export function refusedText({ name, is_shown: isShown, count, errors }) {
  const stays = isShown
    ? "was changed and cannot be drawn, so the map is what it was before"
    : "cannot be drawn, so the map stays as it is";
  const [first] = errors;
  const box = first?.box ?? null;
  const whose = box ? ` (${shortened(box, 40)})` : "";
  const place = first ? ` ${shortened(first.path, 80)}${whose}: ${shortened(first.text, 240)}` : "";
  const more = count > 1 ? ` Document, above, has all ${count} places.` : "";
  const lead = `${shortened(name, 80)} ${stays}: ${plural(count, "error")}.`;
  return { text: `${lead}${place}${more}`, box };
}
