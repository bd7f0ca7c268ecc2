// @ts-check
/** Where in a trace the engine's rules were checked: looked for once a record, when it comes. */

/** @import { EventRecord } from "./records.js" */
/** @import { Store } from "./store.js" */

/** @typedef {{header: any, length: number, checks: number[]}} Index `checks`: of records */

/** @type {WeakMap<object, Index>} */
const indexes = new WeakMap();

/**
 * The last check at or before the cursor.
 * @param {Store} store @returns {EventRecord|null}
 */
export function lastCheck(store) {
  const { records, header, cursor } = store;
  let index = indexes.get(store);
  if (!index || index.header !== header || index.length > records.length) {
    index = { header, length: 0, checks: [] };
    indexes.set(store, index);
  }
  for (; index.length < records.length; index.length += 1) {
    const record = records[index.length];
    if (record.kind === "event" && record.type === "integrity_checked")
      index.checks.push(index.length);
  }
  const at = index.checks.findLast((each) => each <= cursor);
  return at === undefined ? null : /** @type {EventRecord} */ (records[at]);
}

/**
 * Whether a phase of a step, or a command of another kind, came after a check and is at the cursor.
 * @param {Store} store @param {EventRecord} check
 */
export function wentOnSince(store, check) {
  for (let i = store.indexOf(check) + 1; i <= store.cursor; i += 1) {
    const record = store.records[i];
    if (record.kind === "event" ? record.type !== "integrity_checked" : record.phase !== "command")
      return true;
  }
  return false;
}
