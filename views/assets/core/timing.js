// @ts-check
/** How long a request took, as its client saw it. */
import { TraceIndex, atOrBefore } from "./trace_index.js";

/** @import { Row } from "./trace_index.js" */

/**
 * Time to the first token and between tokens, up to the cursor; null where there is none yet.
 * @param {TraceIndex} index @param {Row} row @param {number} cursor
 */
export function timing(index, row, cursor) {
  const all = row.tokens.length > 0 ? row.tokens : row.texts;
  const n = atOrBefore(all.length, (k) => all[k].i, cursor) + 1;
  if (n === 0) return { ttft: null, itl: null };
  const [first, last] = [all[0], all[n - 1]];
  const engine = (
    /** @type {{i: number, t_us: number}} */ a,
    /** @type {{i: number, t_us: number}} */ b,
  ) => index.engineTime(b.i, b.t_us) - index.engineTime(a.i, a.t_us);
  const start = row.submitted;
  const ttft = start && {
    us: first.t_us - start.t_us,
    engineUs: engine(start, first),
    paused: index.pausedBetween(start.i, first.i),
    steps: first.step - start.step + 1,
  };
  const itl = n > 1 && {
    us: (last.t_us - first.t_us) / (n - 1),
    engineUs: engine(first, last) / (n - 1),
    paused: index.pausedBetween(first.i, last.i),
    tokens: n,
  };
  return { ttft, itl: itl || null };
}
