// @ts-check
/** What the cursor of the store is at, for the panels. */
import { entryOfLane } from "../core/lanes.js";
import { STEP_PHASES } from "../core/records.js";
import { traceIndex } from "../core/trace_index.js";
import { phaseParts } from "../words/phase.js";
import { sentenceParts } from "../words/sentence.js";

/** @import { Lane } from "../core/records.js" */
/** @import { StepEntry } from "../core/steps.js" */
/** @import { Store } from "../core/store.js" */
/** @import { Part, Teller } from "../words/parts.js" */

/**
 * The step at the cursor, its events so far, and how far into the step the cursor is.
 * @param {Store} store @param {Lane} [lane] whose step, where the two threads have one each
 */
export function atCursor(store, lane) {
  const entry = lane ? entryOfLane(store, lane) : store.entryOnShow();
  const events = entry ? store.eventsOfStep(entry) : [];
  const record = store.records[latestOf(store, entry)];
  const command = !record || record.phase === "command";
  const phase = command
    ? 0
    : STEP_PHASES.indexOf(record.phase) + (record.kind === "patch" ? 1 : 0.5);
  const step = record?.step ?? stepOf(store);
  return { step, entry, events, command, share: phase / STEP_PHASES.length };
}

/**
 * The last record of a step that the cursor has passed; commands that fell into it lead no further.
 * @param {Store} store @param {StepEntry|null} entry
 */
function latestOf(store, entry) {
  const isOfStep = (/** @type {number} */ at) =>
    store.stepAt(at) === entry && store.records[at]?.phase !== "command";
  let at = Math.min(store.cursor, entry?.last ?? store.cursor);
  while (entry && at > entry.first && !isOfStep(at)) at -= 1;
  return at;
}

/** The step that is on show. @param {Store} store @returns {number} */
export function stepOf(store) {
  const entry = store.entryOnShow();
  if (entry && entry !== store.stepAt(store.cursor)) return entry.step;
  return store.records[store.cursor]?.step ?? store.header?.state?.engine?.step ?? 0;
}

/** Move the cursor to the end of a step. @param {Store} store @param {number} step */
export function seekStep(store, step) {
  const entry = store.log.byStep.get(step);
  if (entry) store.seek(entry.last);
}

/** @type {WeakMap<Store, string>} the request that a panel showed last */
const shownLast = new WeakMap();

/**
 * The request a panel shows: the selected one, else the newest running, else the newest. While a
 * recording plays it stays the same one as long as that runs: nobody can read one that is another
 * in every step.
 * @param {Store} store
 */
export function shownRequest(store) {
  const requests = store.state?.requests ?? {};
  const chosen = store.selection?.request;
  if (chosen && requests[chosen]) return chosen;
  const last = shownLast.get(store) ?? "";
  if (store.clock.playing && requests[last]?.status === "running") return last;
  const newest = newestRequest(store, requests);
  if (newest !== null) shownLast.set(store, newest);
  return newest;
}

/** @param {Store} store @param {any} requests @returns {string|null} running, or else the newest */
function newestRequest(store, requests) {
  const ids = Object.keys(requests);
  const order = traceIndex(store).rows;
  let best = null;
  for (const id of order.keys()) {
    const request = requests[id];
    if (!request) continue;
    if (request.status === "running" || best === null || requests[best].status !== "running")
      best = id;
  }
  return best ?? ids[ids.length - 1] ?? null;
}

/**
 * The opening sentence of a view, in parts.
 * @param {Store} store @param {Teller} tell @param {Lane} [lane] @returns {Part[]}
 */
export function sentenceOf(store, tell, lane) {
  const index = traceIndex(store);
  const { events, step, entry } = atCursor(store, lane);
  const requests = Object.values(store.state?.requests ?? {});
  return sentenceParts(events, tell, {
    step: !entry || (entry.command && events.length === 0) ? undefined : step,
    open: requests.filter((request) => request.status !== "finished").length,
    promptTokens: (id) => index.rows.get(id)?.promptTokens,
    device: store.header?.model?.device,
    ran: (index.steps.get(step)?.ran ?? Infinity) <= store.cursor,
  });
}

/** The line below the sentence: the phase at the cursor. @param {Store} store @returns {Part[]} */
export function phaseOf(store) {
  const at = store.phaseOnShow();
  if (!at || at.entry !== store.entryOnShow()) return [];
  const parts = phaseParts(at.phase, store.phaseEvents());
  if (!store.overlaps || !parts.length) return parts;
  return [{ text: `step ${at.entry.step}, `, seqs: [] }, ...parts];
}

/**
 * What changes with the log or the cursor: a panel that was drawn of it need not be again.
 * @param {Store} store
 */
export function momentKey(store) {
  return `${traceIndex(store).traceId} ${store.records.length} ${store.cursor}`;
}
