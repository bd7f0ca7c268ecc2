// @ts-check
/**
 * What travels on the map at the cursor: one packet for each connection that an event of the
 * current phase travelled. A pure function of the log and the cursor, so that a changed event
 * changes its own packet and no other.
 *
 * @typedef {{connection: string, events: EventRecord[], now: boolean, back: boolean,
 *   quantity: string}} Packet `back`: what the arrow's end asked for comes back to its beginning
 */
import { bytes, count, plural, quote } from "../words/format.js";

/** @import { EventRecord } from "../core/records.js" */

/** What is read goes against its arrow, which leads to where it is kept. */
export const READS = new Set(["weights_read", "pages_read"]);

/**
 * @param {EventRecord[]} events of the current phase up to the cursor
 * @param {EventRecord|null} now the event the cursor stands on
 * @returns {Packet[]} in the order of their first event
 */
export function packetsOf(events, now) {
  /** @type {Map<string, EventRecord[]>} */
  const travelled = new Map();
  for (const event of events) {
    if (event.connection === null) continue;
    const list = travelled.get(event.connection);
    if (list) list.push(event);
    else travelled.set(event.connection, [event]);
  }
  return Array.from(travelled, ([connection, list]) => {
    const here = now !== null && now.connection === connection;
    const shown = here ? [now] : list;
    const back = READS.has(shown[shown.length - 1].type);
    return { connection, events: list, now: here, back, quantity: quantityOf(shown) };
  });
}

/** @param {string} id a request's id, short enough for an arrow */
function shortId(id) {
  const letters = [...id];
  return letters.length <= 9 ? id : `…${letters.slice(-7).join("")}`;
}

/** @param {EventRecord[]} events @param {(facts: any) => number} size */
const sum = (events, size) => events.reduce((total, event) => total + size(event.facts), 0);

/** @param {EventRecord[]} events @param {string} [suffix] */
const whoOf = (events, suffix = "") =>
  events.length === 1 ? shortId(events[0].facts.request) + suffix : `${events.length} req${suffix}`;

/** @type {Record<string, (events: EventRecord[]) => string>} */
export const QUANTITIES = {
  request_submitted: (events) => whoOf(events),
  request_refused: (events) => whoOf(events, " no"),
  request_arrived: (events) => whoOf(events),
  request_aborted: (events) => whoOf(events, " off"),
  prefix_looked_up: (events) =>
    plural(
      sum(events, (f) => f.hit_blocks.length),
      "hit",
    ),
  blocks_hit: (events) =>
    plural(
      sum(events, (f) => f.blocks.length),
      "hit",
    ),
  blocks_allocated: (events) =>
    plural(
      sum(events, (f) => f.blocks.length),
      "block",
    ),
  allocation_failed: () => "no fit",
  blocks_freed: (events) => `${count(sum(events, (f) => f.blocks.length))} back`,
  batch_scheduled: (events) =>
    `${count(sum(events, (f) => f.prefill_tokens + f.decode_tokens))} tok`,
  block_tables_updated: (events) =>
    `+${plural(
      sum(events, (f) => f.new_blocks),
      "block",
    )}`,
  step_dispatched: (events) =>
    events[0].facts.mode === "NONE" ? "eager" : `${events[0].facts.num_padded_tokens} tok`,
  weights_read: (events) => bytes(sum(events, (f) => f.num_bytes)),
  attention_run: (events) => `${count(sum(events, (f) => f.num_tokens))} tok`,
  kv_written: (events) => `${count(sum(events, (f) => f.num_tokens))} tok`,
  pages_read: (events) =>
    plural(
      sum(events, (f) => f.blocks.length),
      "page",
    ),
  heads_grouped: (events) =>
    `${events[0].facts.num_attention_heads} : ${events[0].facts.num_kv_heads}`,
  tokens_returned: (events) => `${count(sum(events, (f) => f.num_tokens))} tok`,
  outputs_returned: (events) => `${count(sum(events, (f) => f.num_requests))} req`,
  text_emitted: (events) =>
    events.length === 1 ? quote(events[0].facts.text, 9) : plural(events.length, "text"),
  request_completed: (events) => whoOf(events, " done"),
};

/** @param {EventRecord[]} events of one connection; the last one's type decides */
export function quantityOf(events) {
  const { type } = events[events.length - 1];
  const make = Object.hasOwn(QUANTITIES, type) ? QUANTITIES[type] : null;
  return make ? make(events.filter((event) => event.type === type)) : "";
}
