// @ts-check
/**
 * What the scheduler's room shows: both queues as the state has them, the shares of the step's
 * budget as its events have given them so far, and what was decided about each request.
 *
 * @typedef {Object} Seat a request in a queue
 * @property {string} id
 * @property {number} hit tokens that its prefix hit
 * @property {number} done tokens with KV
 * @property {number} scheduled tokens that get theirs in a step under way
 * @property {number} known
 * @property {number} preemptions
 * @property {number} priority
 * @property {number} given tokens of this step's budget
 * @property {string} note what this step decided about it, short
 * @property {string} why the same with its reason
 * @property {"" | "admitted" | "stopped" | "preempted" | "passed" | "finished"} mark
 * @typedef {{request: string, kind: "prefill" | "decode", tokens: number, why: string,
 *   seq: number, now: boolean}} Spent
 */
import { computedAt } from "../core/computed.js";
import { queueOf } from "../core/memory_parts.js";
import { traceIndex } from "../core/trace_index.js";
import { isTakenBack } from "../panels/lifecycle_model.js";
import { orNobodyAsked } from "../words/empty.js";
import { eventPhrase, eventSentence } from "../words/events.js";
import { reasonPhrase } from "../words/reasons.js";
import { NOTHING_GIVEN, noteOf } from "../words/rooms.js";

/** @import { Moment } from "../boxes/moment.js" */
/** @import { EventRecord } from "../core/records.js" */
/** @import { Store } from "../core/store.js" */

/** @type {Record<string, Exclude<Seat["mark"], "">>} */
const MARK_OF = {
  admission_stopped: "stopped",
  request_preempted: "preempted",
  request_passed_over: "passed",
  request_finished: "finished",
};

/** @param {Store} store @param {Moment} now */
export function model(store, now) {
  const { state, config, entry } = now;
  const spent = spentOf(store, entry?.step ?? -1);
  const decided = decidedOf(now);
  const computed = computedAt(store);
  const given = new Map(spent.map((share) => [share.request, share.tokens]));
  const seat = (/** @type {string} */ id) => {
    const event = decided.get(id);
    const mark = event ? markOf(store, event) : "";
    return seatOf(state.requests[id], id, computed, given, event, mark);
  };
  const at = store.records[store.cursor];
  const said = saidOf(now, at?.kind === "event" ? at : null);
  return {
    step: entry?.step ?? null,
    budget: config.max_num_batched_tokens ?? 0,
    seats: config.max_num_seqs ?? 0,
    byPriority: config.scheduling_policy === "priority",
    spent,
    total: spent.reduce((sum, share) => sum + share.tokens, 0),
    waiting: queueOf(state, "waiting").map(seat),
    running: queueOf(state, "running").map(seat),
    said: said ? eventSentence(said) : "",
    saidSeq: said?.seq ?? -1,
    none: orNobodyAsked(store, state, NOTHING_GIVEN),
  };
}

/** @typedef {ReturnType<typeof model>} Model */

/**
 * The step's shares up to the cursor, in the order given.
 * @param {Store} store @param {number} step @returns {Spent[]}
 */
function spentOf(store, step) {
  const shares = traceIndex(store).steps.get(step)?.shares ?? [];
  return shares
    .filter((share) => share.i <= store.cursor && !isTakenBack(share, store.cursor))
    .map(({ i, request, kind, tokens, reason }) => ({
      request,
      kind,
      tokens,
      why: reasonPhrase(reason),
      seq: store.records[i].seq,
      now: i === store.cursor,
    }));
}

/** The last decision about each request in this step. @param {Moment} now */
function decidedOf(now) {
  /** @type {Map<string, EventRecord>} */
  const decided = new Map();
  const types = ["request_scheduled", ...Object.keys(MARK_OF)];
  for (const event of types.flatMap((type) => now.all(type)).sort((a, b) => a.seq - b.seq)) {
    const { request } = event.facts;
    // Who was preempted is then at the head of those who are not admitted: the first says more.
    const known = decided.get(request)?.type;
    if (event.type === "admission_stopped" && known === "request_preempted") continue;
    decided.set(request, event);
  }
  return decided;
}

/**
 * @param {any} request its record @param {string} id
 * @param {(id: string) => {done: number, scheduled: number}} computed
 * @param {Map<string, number>} given @param {EventRecord|undefined} event decided last about it
 * @param {Seat["mark"]} mark @returns {Seat}
 */
function seatOf(request, id, computed, given, event, mark) {
  const { done, scheduled } = computed(id);
  return {
    id,
    hit: Math.min(request.hit_tokens ?? 0, done),
    done,
    scheduled,
    known: request.num_tokens ?? 0,
    preemptions: request.num_preemptions ?? 0,
    priority: request.priority ?? 0,
    given: given.get(id) ?? 0,
    note: mark ? noteOf(mark, event?.reason) : "",
    why: event ? eventPhrase(event) : "",
    mark,
  };
}

/**
 * Who was admitted is told by its share from the end of the phase on; until then its card says it.
 * @param {Store} store @param {EventRecord} event @returns {Seat["mark"]}
 */
function markOf(store, event) {
  if (event.type !== "request_scheduled") return MARK_OF[event.type];
  const end = store.phaseAt(store.indexOf(event))?.last ?? -1;
  return event.facts.kind !== "running" && store.cursor < end ? "admitted" : "";
}

const SAID = new Set([
  "request_arrived",
  "request_scheduled",
  "request_passed_over",
  "request_preempted",
  "admission_stopped",
  "batch_scheduled",
  "token_appended",
  "token_dropped",
  "request_finished",
  "request_aborted",
  "outputs_returned",
]);

/**
 * What is said below the budget: the event at the cursor, else the last decision here.
 * @param {Moment} now @param {EventRecord|null} at
 */
function saidOf(now, at) {
  if (at && SAID.has(at.type)) return at;
  let last = null;
  for (const [type, events] of now.events) {
    const event = events[events.length - 1];
    if (SAID.has(type) && (!last || event.seq > last.seq)) last = event;
  }
  return last;
}
