// @ts-check
/**
 * What a tab remembers over a reload. A full or forbidden storage costs that memory and nothing
 * else.
 */

/** @param {string} key @param {string} text */
export function keepText(key, text) {
  try {
    sessionStorage.setItem(key, text);
  } catch {
    // It is not there after a reload, that is all.
  }
}

/** @param {string} key @returns {string|null} null: nothing was kept */
export function recallText(key) {
  try {
    return sessionStorage.getItem(key);
  } catch {
    return null;
  }
}

/** @param {string} key @param {any} value that JSON has */
export function keep(key, value) {
  keepText(key, JSON.stringify(value));
}

/** @param {string} key @returns {any} null: nothing was kept, or nothing that can be read */
export function recall(key) {
  try {
    return JSON.parse(recallText(key) ?? "null");
  } catch {
    return null;
  }
}
