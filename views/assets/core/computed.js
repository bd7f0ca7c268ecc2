// @ts-check
/**
 * How many of a request's tokens have KV, and how many will once the forwards have run that it is
 * scheduled in.
 *
 * The engine adds a step's tokens to `num_computed_tokens` when it closes the batch. Until the
 * forward of that step has run, they are scheduled and no more, as they are from the moment that
 * the request was given them. Where steps overlap, that may be
 * two steps' tokens.
 *
 * Behind all these there may be slots with K and V of rejected drafts: they are stale until a
 * token that comes there overwrites them.
 */
import { countedTokens } from "./pool.js";
import { slotsOf } from "./speculation.js";
import { traceIndex } from "./trace_index.js";

/** @import { Store } from "./store.js" */
/** @import { Share } from "./trace_index.js" */

/** @typedef {{done: number, scheduled: number, stale: number}} Computed in tokens, in slots */

/** Which formula, for hovers. */
export const COMPUTED_HOW =
  "num_computed_tokens, less what was scheduled and whose forward has not run";

/** @param {Store} store @returns {(id: string) => Computed} as of the cursor */
export function computedAt(store) {
  const index = traceIndex(store);
  const { cursor } = store;
  const steps = stepsAt(store).filter((step) => (index.steps.get(step)?.ran ?? 0) > cursor);
  return (id) => {
    const computed = countedTokens(store.state, id);
    const row = index.rows.get(id);
    const starts = steps
      .map((step) => /** @type {Share|undefined} */ (row?.shares.get(step)))
      .filter((share) => share !== undefined && share.i <= cursor)
      .map((share) => /** @type {Share} */ (share).from);
    const run = Math.min(computed, ...starts);
    if (!row?.verified.size) return { done: run, scheduled: computed - run, stale: 0 };
    const { written, kept } = slotsOf(index, row, cursor);
    const done = Math.min(run, kept);
    const scheduled = computed - run;
    return { done, scheduled, stale: Math.max(0, written - done - scheduled) };
  };
}

/** The steps under way: the cursor's own, and with it those in flight. @param {Store} store */
function stepsAt(store) {
  const record = store.records[store.cursor];
  const own = record ? [record.step] : [];
  return [...new Set([...own, ...store.inFlight.map(({ step }) => step)])];
}
