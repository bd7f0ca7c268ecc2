// @ts-check
/**
 * How long a request took, as its client saw it: from its submission to the first text that went
 * out, and between one text and the next. The engine's own time beside it leaves out the pauses
 * between phases.
 */
import { atOrBefore } from "./sorted.js";
import { traceIndex } from "./trace_index.js";

/** @import { Store } from "./store.js" */

/**
 * @typedef {{i: number, t_us: number}} Moment a record and its time
 * @typedef {{us: number, engineUs: number, paused: boolean}} Interval of the log's clock; the
 *   engine's part of it; whether the engine stood paused in it
 * @typedef {{first: Interval|null, last: Interval|null, mean: (Interval & {gaps: number})|null}}
 *   Timing to the first text, between the last two, and the mean between two
 */

/** What the intervals are, for hovers. */
export const FIRST_HOW = "from request_submitted to the first text_emitted, by the log's clock";
export const LAST_HOW = "between the last two text_emitted events, by the log's clock";

/** @param {number} gaps */
export function meanHow(gaps) {
  return `(last - first text_emitted) ÷ ${gaps}, by the log's clock`;
}

/** @param {Store} store @param {string} id @returns {Timing} as of the cursor */
export function timingOf(store, id) {
  const index = traceIndex(store);
  const row = index.rows.get(id);
  const texts = row?.texts ?? [];
  const count = atOrBefore(texts.length, (k) => texts[k].i, store.cursor) + 1;
  /** @param {Moment} from @param {Moment} to @returns {Interval} */
  const between = (from, to) => ({
    us: to.t_us - from.t_us,
    engineUs: index.engineTime(to.t_us) - index.engineTime(from.t_us),
    paused: index.pausedBetween(from.i, to.i),
  });
  const start = row?.submitted;
  const first = start && count > 0 ? between(start, texts[0]) : null;
  if (count < 2) return { first, last: null, mean: null };
  const whole = between(texts[0], texts[count - 1]);
  const gaps = count - 1;
  const mean = { ...whole, us: whole.us / gaps, engineUs: whole.engineUs / gaps, gaps };
  return { first, last: between(texts[count - 2], texts[count - 1]), mean };
}
