// @ts-check
/** What the inspector says of a box, a request, a block and the document, beside their figures. */
import { plural } from "./format.js";

export const INSPECTOR = {
  name: "Inspector",
  deselect: "Deselect",
  deselectTitle: "Deselect (Esc)",
  liveState: "Live state",
  eventsHere: "Events here",
  noEvents: "None up to the cursor.",
  here: "Here, in this project",
  pinned: "Pinned by the document",
  noSource: "The document gives no source for this component.",
  sendsTo: "Sends to",
  receivesFrom: "Receives from",
  onTheWay: " on the way of a request.",
  claims: "Claims",
  prompt: "Prompt",
  output: "Output",
  outputSoFar: "Output so far",
  blockTable: "Block table",
  tableHow: "block_table in the request's record",
  abort: "Abort this request",
  whyRequest: "Why it stands as it does",
  gone: "At the cursor this request is not there: not yet submitted, or long finished.",
  ofThePool: "of the KV pool",
  heldBy: "Held by",
  nobody: "nobody",
  whyBlock: "Why it holds what it holds",
  map: "The map",
  selectLive: "Select a box to see its live state, its code here and its place in vLLM.",
  selectStatic:
    "Select a box to see what the document says of it, and what it is connected with.",
  whyStep: "Why this step looks as it does",
  claimsOfMap: "Claims about the map",
  truth: "How to read the numbers",
  document: "Document",
};

/** @param {string} release of vLLM, "" where the source names none */
export function inVllm(release) {
  return `In vLLM ${release}`.trim();
}

/** @param {string} label of the box */
export function sourcesOf(label) {
  return `${label}'s sources`;
}

/**
 * How many boxes are before and behind one; null: none. `how` names them.
 * @param {string[]} upstream @param {string[]} downstream their names
 */
export function reachText(upstream, downstream) {
  const text = [
    upstream.length && `${plural(upstream.length, "box")} upstream`,
    downstream.length && `${plural(downstream.length, "box")} downstream`,
  ].filter(Boolean);
  if (!text.length) return null;
  const how =
    `the document's connections\nupstream: ${upstream.join(", ") || "none"}\n` +
    `downstream: ${downstream.join(", ") || "none"}`;
  return { text: text.join(", "), how };
}

/** @param {string} fix */
export function mendText(fix) {
  return `To mend it: ${fix}`;
}

/** @param {number} count */
export function notesText(count) {
  return `${plural(count, "note")} for the document's author`;
}

/** @param {number} id */
export function blockName(id) {
  return `Block ${id}`;
}
