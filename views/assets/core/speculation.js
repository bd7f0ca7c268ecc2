// @ts-check
/**
 * Drafts of requests: what waits to be verified, what became of the latest, and how many are
 * accepted. From the runner's events alone.
 *
 * K and V of a rejected draft stay in their slot until a token that comes there has overwritten
 * them: `slotsOf` says how far such slots go.
 */
import { pieceAt } from "./tokens.js";
import { traceIndex } from "./trace_index.js";

/** @import { Store } from "./store.js" */
/** @import { Mark, Row, TraceIndex } from "./trace_index.js" */

/**
 * pending: nobody has looked at it yet. unjudged: it stands behind a rejected one.
 * @typedef {"pending" | "accepted" | "rejected" | "unjudged"} Verdict
 */
/**
 * @typedef {Object} Draft
 * @property {string} text
 * @property {number} id -1: padding
 * @property {number} position
 * @property {Verdict} verdict
 * @property {number} [model] the model's own probability of it
 * @property {number} [chance] with which it was accepted, where tokens are drawn
 */
/** @typedef {{steps: number, drafted: number, accepted: number}} Tally over steps with drafts */

/**
 * @param {Store} store @param {string} id
 * @returns {{proposed: Mark|null, verified: Mark|null}} the latest up to the cursor
 */
export function latestDrafts(store, id) {
  const row = traceIndex(store).rows.get(id);
  return {
    proposed: row ? latest(row.proposed, store.cursor) : null,
    verified: row ? latest(row.verified, store.cursor) : null,
  };
}

/** @param {Map<number, Mark>} marks by step @param {number} cursor @returns {Mark|null} */
function latest(marks, cursor) {
  return [...marks.values()].findLast((mark) => mark.i <= cursor) ?? null;
}

/** @param {Pick<Mark, "facts">} mark of drafts_verified @returns {Draft[]} */
export function verifiedDrafts({ facts: f }) {
  return f.drafts.map((/** @type {number} */ draft, /** @type {number} */ k) => ({
    text: f.texts[k],
    id: draft,
    position: f.position + k,
    verdict: k < f.num_accepted ? "accepted" : k > f.num_accepted ? "unjudged" : "rejected",
    model: f.probabilities[k],
    chance: f.drawn_from[k],
  }));
}

/** @param {Mark} mark of drafts_proposed @returns {Draft[]} */
function proposedDrafts({ facts: f }) {
  return f.drafts.map((/** @type {number} */ draft, /** @type {number} */ k) => ({
    text: f.texts[k],
    id: draft,
    position: f.position + k,
    verdict: "pending",
  }));
}

/**
 * Drafts to show behind a request's output: those of this step that are no output (or whose text
 * has not been sent yet), and those that wait.
 * @param {Store} store @param {string} id @param {number} step @returns {Draft[]}
 */
export function draftsBehind(store, id, step) {
  const request = store.state?.requests?.[id];
  if (request?.status !== "running") return [];
  const { proposed, verified } = latestDrafts(store, id);
  const known = request.num_tokens ?? 0;
  const drafts = verified?.step === step ? verifiedDrafts(verified) : [];
  const isOutput = (/** @type {Draft} */ { verdict, position }) =>
    verdict === "accepted" && pieceAt(request, position) !== undefined;
  const rest = drafts.filter((draft) => !isOutput(draft));
  const waits = proposed && proposed.i > (verified?.i ?? -1) && proposed.facts.position >= known;
  return [...rest, ...(waits && !isLost(store, id, proposed) ? proposedDrafts(proposed) : [])];
}

/** Whether the request was preempted since. @param {Store} store @param {string} id
 * @param {Mark} proposed */
function isLost(store, id, proposed) {
  const lost = latest(traceIndex(store).row(id).preempted, store.cursor);
  return lost !== null && lost.i > proposed.i;
}

/** @param {Store} store @param {string} id @returns {Tally} up to the cursor */
export function tallyOf(store, id) {
  const tally = { steps: 0, drafted: 0, accepted: 0 };
  for (const { i, facts } of traceIndex(store).rows.get(id)?.verified.values() ?? []) {
    if (i > store.cursor) break;
    tally.steps += 1;
    tally.drafted += facts.drafts.length;
    tally.accepted += facts.num_accepted;
  }
  return tally;
}

/** Tokens that a step with drafts brings on average. @param {Tally} tally */
export function meanLength({ steps, accepted }) {
  return 1 + accepted / steps;
}

/**
 * How far a request's slots are written, and up to where tokens of it stand there: what lies
 * between is of rejected drafts.
 * @param {TraceIndex} index @param {Row} row @param {number} cursor
 * @returns {{written: number, kept: number}} `kept` is Infinity where nothing has been rejected
 *   since the latest step was scheduled
 */
export function slotsOf(index, row, cursor) {
  const verdict = latest(row.verified, cursor);
  const none = { written: 0, kept: Infinity };
  if (!verdict) return none;
  const lost = latest(row.preempted, cursor)?.i ?? -1;
  if (lost > verdict.i) return none;
  let written = 0;
  let scheduled = -1; // the newest share
  for (const [step, share] of row.shares) {
    if (share.i > cursor) break;
    scheduled = share.i;
    if (share.i < lost || Number(share.takenBack) <= cursor) continue;
    if ((index.steps.get(step)?.ran ?? Infinity) <= cursor)
      written = Math.max(written, share.from + share.tokens);
  }
  const { position, num_accepted } = verdict.facts;
  return { written, kept: scheduled > verdict.i ? Infinity : position + num_accepted };
}
