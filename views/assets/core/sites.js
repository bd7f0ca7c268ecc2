// @ts-check
/**
 * Which line of the engine's source made an event, and which made its reason. The places are the
 * server's (engine/source_sites.py); where several make the same, the log tells which it was.
 *
 * @typedef {{name: string, values: (string|number|boolean)[]}} Among
 * @typedef {{event: string[], reason: string[], fact: Among|null, number: Among|null,
 *   after: string, after_fact: Among|null}} When
 * @typedef {{line: number, column: number, whole: boolean, of: "facts"|"reason"|"config",
 *   name: string}} SiteValue
 * @typedef {{kind: "event"|"reason", makes: string, path: string, symbol: string, first: number,
 *   last: number, line: number, end_line: number, when: When|null, values: SiteValue[]}} Site
 * @typedef {{version: string, files: string[], sites: Site[]}} SiteTable
 */

/** @import { EventRecord } from "./records.js" */
/** @import { Store } from "./store.js" */

/**
 * Where an event was made, and its reason if it has one; null where the table knows no place.
 * @param {SiteTable} table @param {Store} store @param {EventRecord} event
 * @returns {{event: Site|null, reason: Site|null}}
 */
export function sitesOf(table, store, event) {
  const find = (/** @type {"event"|"reason"} */ kind, /** @type {string} */ makes) => {
    const sites = table.sites.filter((site) => site.kind === kind && site.makes === makes);
    if (sites.some((site) => site.when?.after) && isCutOff(store, event)) return null;
    return sites.find((site) => holds(site.when, store, event)) ?? null;
  };
  const { reason } = event;
  const made = find("event", event.type);
  return { event: made, reason: reason ? nearest(table, made, find("reason", reason.code)) : null };
}

/**
 * A reason that is made beside its event, in the same statement, is that one.
 * @param {SiteTable} table @param {Site|null} made @param {Site|null} found
 */
function nearest(table, made, found) {
  const beside = table.sites.find(
    (site) =>
      site.kind === "reason" &&
      site.makes === found?.makes &&
      site.path === made?.path &&
      site.line === made.line,
  );
  return beside ?? found;
}

/**
 * Whether the beginning of the event's phase may be among the records that the log has let go of.
 * @param {Store} store @param {EventRecord} event
 */
function isCutOff(store, event) {
  return store.header.base_seq > 0 && store.phaseAt(store.indexOf(event))?.first === 0;
}

/** @param {When|null} when @param {Store} store @param {EventRecord} event @returns {boolean} */
function holds(when, store, event) {
  if (!when) return true;
  const { type, reason, facts } = event;
  return (
    (when.event.length === 0 || when.event.includes(type)) &&
    (when.reason.length === 0 || when.reason.includes(reason?.code ?? "")) &&
    isAmong(when.fact, facts) &&
    isAmong(when.number, reason) &&
    (!when.after || follows(store, event, when))
  );
}

/** @param {Among|null} wanted @param {Record<string, any>|undefined} facts */
function isAmong(wanted, facts) {
  return !wanted || wanted.values.includes(facts?.[wanted.name]);
}

/**
 * Whether the event's request had such an event before it in the same phase of the step.
 * @param {Store} store @param {EventRecord} event @param {When} when
 */
function follows(store, event, { after, after_fact: fact }) {
  const at = store.indexOf(event);
  const phase = store.phaseAt(at);
  const before = phase ? store.eventsOfPhase(phase, at - 1) : [];
  const { request } = event.facts;
  return before.some(
    (other) =>
      other.type === after && other.facts.request === request && isAmong(fact, other.facts),
  );
}

/**
 * The version of the source of the engine that wrote a log; "" where it does not say.
 * @param {Store} store
 */
export function versionOf(store) {
  return String(store.header?.versions?.glassbox ?? "");
}
