// @ts-check
/**
 * How many of a request's tokens have KV, and how many will once this step's forward has run.
 *
 * The engine adds a step's tokens to `num_computed_tokens` when it schedules them. Until the
 * forward of that step has run, they are scheduled and no more.
 */
import { traceIndex } from "./trace_index.js";

/** @import { Store } from "./store.js" */

/** @typedef {{done: number, scheduled: number}} Computed in tokens */

/** Which formula, for hovers. */
export const COMPUTED_HOW =
  "num_computed_tokens, less what this step schedules until its forward has run";

/** @param {Store} store @returns {(id: string) => Computed} as of the cursor */
export function computedAt(store) {
  const index = traceIndex(store);
  const { cursor } = store;
  const record = store.records[cursor];
  const facts = record && index.steps.get(record.step);
  const hasRun = facts !== undefined && facts.ran <= cursor;
  return (id) => {
    const computed = store.state?.requests?.[id]?.num_computed_tokens ?? 0;
    const share = hasRun ? undefined : index.rows.get(id)?.shares.get(record?.step);
    if (!share || share.i > cursor) return { done: computed, scheduled: 0 };
    const done = Math.min(computed, share.from);
    return { done, scheduled: computed - done };
  };
}
