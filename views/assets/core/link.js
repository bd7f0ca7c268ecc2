// @ts-check
/**
 * A link to what the page shows: the fragment of its address, which never leaves the browser. It
 * names things and holds no key; what a server must know (document, lesson) is in the query.
 *
 * @typedef {Object} Link what a fragment names; null where it does not
 * @property {string|null} view
 * @property {string|null} box
 * @property {string|null} room the box whose inside is shown
 * @property {string|null} request
 * @property {number|null} block
 * @property {string|null} trace the log's id
 * @property {string|null} file the name of the file that it was opened from
 * @property {string|null} saved the same, of a file in the server's folder of traces
 * @property {number|null} step
 * @property {string|null} phase
 * @property {number|null} seq of the record that the cursor stands at
 * @property {"shared"|null} engine whose log it is where it is not the tab's own engine's
 * @property {string|null} side the tab beside the map
 * @property {string|null} claim the numbers of the claims asked for in it, the one in sight first
 * @property {number|null} lesson_step of the lesson that the query names, from 1
 * @property {string|null} compare what the comparison that is open runs: a preset, "recorded"
 * @property {string|null} setting that its engines differ in
 * @property {string|null} a its values
 * @property {string|null} b
 */
import { STEP_PHASES } from "./records.js";

/** @import { Store } from "./store.js" */

const LONGEST = 4000; // characters of a fragment
const LONGEST_VALUE = 300;
const WHOLE = /^\d{1,12}$/;
const NUMBERS = /^\d{1,4}(,\d{1,4}){0,60}$/;
/** The tabs beside the map. */
export const SIDES = /** @type {const} */ (["inspector", "code", "log", "rules", "claims"]);
/** @typedef {typeof SIDES[number]} SideName */
const PHASES = new Set([...STEP_PHASES, "command"]);

/** What each part may be. @type {Record<keyof Link, (text: string) => any>} undefined: not that */
const PARTS = {
  view: name,
  box: name,
  room: name,
  request: name,
  block: whole,
  trace: name,
  file: name,
  saved: name,
  step: whole,
  phase: (text) => (PHASES.has(text) ? text : undefined),
  seq: (text) => (text === "-1" ? -1 : whole(text)),
  engine: (text) => (text === "shared" ? text : undefined),
  side: (text) => SIDES.find((side) => side === text),
  claim: (text) => (NUMBERS.test(text) ? text : undefined),
  lesson_step: whole,
  compare: name,
  setting: name,
  a: name,
  b: name,
};

/** @param {string} text */
function name(text) {
  return text !== "" && text.length <= LONGEST_VALUE ? text : undefined;
}

/** @param {string} text */
function whole(text) {
  return WHOLE.test(text) ? Number(text) : undefined;
}

/** @returns {Link} */
export function nothing() {
  return /** @type {Link} */ (Object.fromEntries(Object.keys(PARTS).map((part) => [part, null])));
}

/**
 * @param {string} fragment with or without its `#`
 * @returns {{link: Link, odd: string[]}|null} null where it is no link of ours; `odd` are the parts
 *   of it that say nothing
 */
export function parseLink(fragment) {
  const text = fragment.replace(/^#/, "");
  if (!text.includes("=")) return null;
  if (text.length > LONGEST) return { link: nothing(), odd: ["all of it, for its length"] };
  const link = nothing();
  /** @type {string[]} */
  const odd = [];
  let known = 0;
  for (const [part, value] of new URLSearchParams(text)) {
    const read = Object.hasOwn(PARTS, part) ? PARTS[/** @type {keyof Link} */ (part)] : null;
    const found = read?.(value);
    if (read) known += 1;
    if (found === undefined) odd.push(`${part}=${value}`);
    else /** @type {any} */ (link)[part] = found;
  }
  return known ? { link, odd } : null;
}

/**
 * What the page shows, as a fragment without its `#`.
 * @param {Store} store @param {Partial<Link>} beside what is shown beside the map
 * @param {boolean} [pinned] with the moment, even where the page follows its engine
 */
export function linkTo(store, beside, pinned = false) {
  const { selection, header } = store;
  /** @type {Partial<Link>} */
  const link = { view: store.view, box: selection.component };
  if (store.opened) link.room = store.opened;
  link.request = selection.request;
  link.block = selection.block;
  if (header && (pinned || !store.live || !store.following)) {
    const at = store.phaseAt(store.cursor);
    Object.assign(link, {
      trace: header.trace_id,
      ...(store.live ? {} : { [store.savedPath ? "saved" : "file"]: store.traceName }),
      step: at?.entry.step,
      phase: at?.phase,
      seq: header.base_seq + store.cursor,
    });
  }
  if (store.live && store.engine === "shared") link.engine = "shared";
  Object.assign(link, beside);
  const query = new URLSearchParams();
  for (const [part, value] of Object.entries(link)) {
    if (value === null || value === undefined || value === "") continue;
    query.set(part, String(value).slice(0, LONGEST_VALUE));
  }
  return query.toString();
}

/**
 * The record that a link leads to.
 * @param {Store} store that shows the link's log @param {Link} link
 * @returns {number|null|undefined} its index; null: the link names no moment; undefined: the log
 *   does not have it
 */
export function placeOf(store, { step, phase, seq }) {
  if (seq !== null) {
    const index = seq - store.header.base_seq;
    return index >= -1 && index <= store.head ? index : undefined;
  }
  if (step === null) return null;
  const entry = store.log.byStep.get(step);
  if (!entry || !phase) return entry?.last;
  return entry.phases.find((span) => span.phase === phase)?.last;
}
