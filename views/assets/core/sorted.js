// @ts-check
/** Looking things up in rows that are in order. */

/**
 * The last place whose value is at or before `limit`; -1 where none is.
 * @param {number} length @param {(k: number) => number} value @param {number} limit
 */
export function atOrBefore(length, value, limit) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (value(middle) <= limit) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
