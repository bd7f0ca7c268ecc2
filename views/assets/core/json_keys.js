// @ts-check
/**
 * Whether a JSON text has a key twice in one object: to the browser's parser the last one counts,
 * to other readers the first, or none of them.
 */

const QUOTE = '"';
const AFTER = /\s*:/y; // a key

/** @param {string} text that is JSON @param {any} value what was parsed of it */
export function hasKeyTwice(text, value) {
  return keysWritten(text) > keysIn(value);
}

/** @param {string} text */
function keysWritten(text) {
  let n = 0;
  for (let at = text.indexOf(QUOTE); at >= 0; at = text.indexOf(QUOTE, at + 1)) {
    at = endOf(text, at);
    AFTER.lastIndex = at + 1;
    if (AFTER.test(text)) n += 1;
  }
  return n;
}

/** The quote that closes the one at a place. @param {string} text @param {number} at */
function endOf(text, at) {
  for (let end = text.indexOf(QUOTE, at + 1); ; end = text.indexOf(QUOTE, end + 1)) {
    let before = end;
    while (text[before - 1] === "\\") before -= 1;
    if ((end - before) % 2 === 0) return end;
  }
}

/** However deep it is. @param {any} value */
function keysIn(value) {
  let n = 0;
  const open = [value];
  while (open.length) {
    const each = open.pop();
    if (typeof each !== "object" || each === null) continue;
    const inner = Object.values(each);
    if (!Array.isArray(each)) n += inner.length;
    for (const item of inner) if (typeof item === "object") open.push(item);
  }
  return n;
}
