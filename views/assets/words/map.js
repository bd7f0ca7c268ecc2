// @ts-check
/** What stands on the map and around it, beside the document's own words. */
import { capital } from "./format.js";

export const MAP = {
  static: "No part of this document has a counterpart in the engine: the map is static.",
  staticBox: "Static: no live counterpart",
  legend: "Legend",
  zoomIn: "Zoom in (Ctrl and wheel, or + on the map)",
  zoomOut: "Zoom out",
  fit: "Fit the map",
  untitled: "architecture",
};

/** @type {Record<string, string>} */
const KINDS = {
  region: "Region",
  "security-group": "Security group",
  event: "Event of the engine",
  cloud: "Cloud / graph",
  database: "Database / memory",
  messagebus: "Message bus",
};

/** A kind of box or of frame, as the legend has it. @param {string} kind */
export function kindText(kind) {
  return Object.hasOwn(KINDS, kind) ? KINDS[kind] : capital(kind);
}

/** @param {{label: string, sublabel?: string, tag?: string, live?: string|null}} item */
export function boxText({ label, sublabel, tag, live }) {
  const state = live ? "" : "\nStatic: it has no live counterpart in this engine.";
  return [label, sublabel, tag].filter(Boolean).join(" · ") + state;
}

/** @param {string} from @param {string} to @param {string} label @param {boolean} live */
export function lineText(from, to, label, live) {
  const state = live ? "" : "\nStatic: no event of the engine travels here.";
  return `${from} → ${to}${label ? `: ${label}` : ""}${state}`;
}

/** @param {string} title of the document */
export function mapText(title) {
  return `Map: ${title}`;
}
