// @ts-check
/** How much of the KV pool is in use, and for what: one formula for map, inspector and panels. */

/** Which formula, for hovers. */
export const USED_HOW = "num_gpu_blocks - 1 (the null block) - free";

/**
 * @param {any} state @param {any} config
 * @returns {{total: number, free: number, used: number, share: number}} in blocks; the null block
 *   is in none of them
 */
export function poolUse(state, config) {
  const total = Math.max(0, (config?.num_gpu_blocks ?? 1) - 1);
  const free = state?.queues?.free?.length ?? 0;
  const used = Math.max(0, total - free);
  return { total, free, used, share: total > 0 ? used / total : 0 };
}

/**
 * Tokens of a request that count as computed, and those that the step being scheduled has given it.
 * @param {any} state @param {string} id
 * @returns {number}
 */
export function countedTokens(state, id) {
  return (state?.requests?.[id]?.num_computed_tokens ?? 0) + (state?.given?.[id] ?? 0);
}
