// @ts-check
/** Where in a trace the engine was looked at: noted once a record, when it comes. */
import { ASIDES } from "./records.js";

/** @import { EventRecord } from "./records.js" */
/** @import { Store } from "./store.js" */

/** @typedef {{header: any, length: number, asides: number[]}} Index `asides`: of records */

/** @type {WeakMap<object, Index>} */
const indexes = new WeakMap();

/**
 * The last event of a type at or before a record, of those that `is` it.
 * @param {Store} store @param {string} type of ASIDES @param {(event: EventRecord) => boolean} [is]
 * @param {number} [upto] the cursor, where it is not given
 * @returns {EventRecord|null}
 */
export function lastAside(store, type, is = () => true, upto = store.cursor) {
  const { records, header } = store;
  let index = indexes.get(store);
  if (!index || index.header !== header || index.length > records.length) {
    index = { header, length: 0, asides: [] };
    indexes.set(store, index);
  }
  for (; index.length < records.length; index.length += 1) {
    const record = records[index.length];
    if (record.kind === "event" && ASIDES.has(record.type)) index.asides.push(index.length);
  }
  const found = index.asides.findLast((at) => {
    const record = /** @type {EventRecord} */ (records[at]);
    return at <= upto && record.type === type && is(record);
  });
  return found === undefined ? null : /** @type {EventRecord} */ (records[found]);
}

/**
 * Whether a phase of a step, or a command of another kind, came after a look and is at the cursor.
 * @param {Store} store @param {EventRecord} look
 */
export function wentOnSince(store, look) {
  for (let i = store.indexOf(look) + 1; i <= store.cursor; i += 1) {
    const record = store.records[i];
    if (record.kind === "event" ? !ASIDES.has(record.type) : record.phase !== "command")
      return true;
  }
  return false;
}
