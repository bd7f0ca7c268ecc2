// @ts-check
/**
 * How many of a request's tokens have KV, and how many will once the forwards have run that it is
 * scheduled in.
 *
 * The engine adds a step's tokens to `num_computed_tokens` when it schedules them. Until the
 * forward of that step has run, they are scheduled and no more. Where steps overlap, that may be
 * two steps' tokens.
 */
import { traceIndex } from "./trace_index.js";

/** @import { Store } from "./store.js" */
/** @import { Share } from "./trace_index.js" */

/** @typedef {{done: number, scheduled: number}} Computed in tokens */

/** Which formula, for hovers. */
export const COMPUTED_HOW =
  "num_computed_tokens, less what was scheduled and whose forward has not run";

/** @param {Store} store @returns {(id: string) => Computed} as of the cursor */
export function computedAt(store) {
  const index = traceIndex(store);
  const { cursor } = store;
  const steps = stepsAt(store).filter((step) => (index.steps.get(step)?.ran ?? 0) > cursor);
  return (id) => {
    const computed = store.state?.requests?.[id]?.num_computed_tokens ?? 0;
    const shares = index.rows.get(id)?.shares;
    const starts = steps
      .map((step) => /** @type {Share|undefined} */ (shares?.get(step)))
      .filter((share) => share !== undefined && share.i <= cursor)
      .map((share) => /** @type {Share} */ (share).from);
    const done = Math.min(computed, ...starts);
    return { done, scheduled: computed - done };
  };
}

/** The steps under way: the cursor's own, and with it those in flight. @param {Store} store */
function stepsAt(store) {
  const record = store.records[store.cursor];
  const own = record ? [record.step] : [];
  return [...new Set([...own, ...store.inFlight.map(({ step }) => step)])];
}
