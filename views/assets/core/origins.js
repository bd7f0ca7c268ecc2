// @ts-check
/**
 * What the log says of an event's past: who cached that content, who holds it, who is ahead.
 *
 * The counterpart of engine/origins.py, record by record as they come; a test compares the two.
 */
import { BlockOrigins } from "./block_origins.js";
import { blocksOf } from "./records.js";
import { atOrBefore } from "./sorted.js";
import { DECISIONS } from "./why.js";

/** @import { EventRecord, LogRecord, PatchRecord } from "./records.js" */
/** @import { Store } from "./store.js" */

/**
 * @typedef {Record<string, any>} Numbers what an event alone does not have, as it stood then
 * @typedef {"waiting" | "running" | "gone"} Status
 * @typedef {{seq: number, status: Status, step: number}} Standing from a record on
 */

/** @type {WeakMap<Store, Origins>} */
const readings = new WeakMap();

/** The origins of the store's trace, up to its last record. @param {Store} store */
export function originsOf(store) {
  let origins = readings.get(store);
  if (!origins?.continues(store)) {
    origins = new Origins(store.header);
    readings.set(store, origins);
  }
  origins.read(store.records);
  return origins;
}

export class Origins {
  /** @param {any} header */
  constructor(header) {
    this.header = header;
    this.length = 0;
    this.blockSize = header?.config?.block_size ?? 1;
    /** @type {Map<number, Numbers>} by sequence number, where there are any */
    this.numbers = new Map();
    /** @type {Map<number, EventRecord[]>} decisions by step */
    this.events = new Map();
    /** @type {number[]} as they first appear */
    this.steps = [];
    /** @type {Map<string, number>} the place in `steps` from which on a request is spoken of */
    this.begins = new Map();
    /** @type {Map<number, EventRecord[]>} events about each block */
    this.blocks = new Map();
    /** @type {Map<string, Standing[]>} */
    this.standings = new Map();
    /** @type {Map<string, {seq: number, who: string}[]>} */
    this.ahead = new Map();
    /** @type {Map<number, number>} the record that ends a step's `schedule` */
    this.scheduleEnds = new Map();

    // As of the record that was read last.
    /** @type {Set<string>} */
    this.running = new Set();
    /** @type {Map<string, number>} tokens that a request had when it was preempted */
    this.computed = new Map();
    /** @type {Map<string, {step: number, tokens: number}>} a request's latest share */
    this.given = new Map();
    /** @type {{step: number, who: string[]}} */
    this.victims = { step: -1, who: [] };
    this.cache = new BlockOrigins(this.blockSize);
    if (header) this.begin(header.state, header.base_seq - 1);
  }

  /** Forgetting the oldest records brings another header. @param {Store} store */
  continues(store) {
    return store.header === this.header && store.records.length >= this.length;
  }

  /** @param {LogRecord[]} records */
  read(records) {
    for (; this.length < records.length; this.length += 1) {
      const record = records[this.length];
      if (record.kind === "patch") this.takePatch(record);
      else this.takeEvent(record);
    }
  }

  /**
   * How a request stood at a record; null before it came.
   * @param {string} request @param {number} seq
   */
  standing(request, seq) {
    return lastUpTo(this.standings.get(request), seq);
  }

  /**
   * How many are ahead of a waiting request, and for how many steps it has waited. The queue is
   * the one that the step's `schedule` left.
   * @param {string} request @param {EventRecord} event @returns {Numbers}
   */
  placeInQueue(request, event) {
    const seq = this.scheduleEnds.get(event.step) ?? event.seq;
    let count = 0;
    let other = this.whoIsAhead(request, seq);
    for (; other && count < this.ahead.size; count += 1) other = this.whoIsAhead(other, seq);
    return { ahead: count, ...this.waited(event, request) };
  }

  /** @param {string} request @param {number} seq @returns {string} "" at the head */
  whoIsAhead(request, seq) {
    return lastUpTo(this.ahead.get(request), seq)?.who ?? "";
  }

  // -- reading -----------------------------------------------------------------------------------

  /**
   * The state before the first record, whose past is not known.
   * @param {any} state @param {number} seq
   */
  begin(state, seq) {
    const step = state?.engine?.step ?? 0;
    for (const [id, request] of Object.entries(state?.requests ?? {})) {
      this.takeRequest(id, request, seq);
      this.begins.set(id, 0);
      if (request.status === "running") {
        this.stand(id, seq, "running", step);
        this.running.add(id);
      } else if (request.status === "waiting" || request.status === "preempted") {
        this.stand(id, seq, "waiting", step);
      }
    }
    this.cache.begin(state, step);
  }

  /** @param {PatchRecord} patch */
  takePatch(patch) {
    const { requests } = patch.changes;
    for (const id in requests) {
      if (requests[id] !== null) this.takeRequest(id, requests[id], patch.seq);
    }
    if (patch.phase === "schedule") this.scheduleEnds.set(patch.step, patch.seq);
  }

  /** @param {string} id @param {any} changes @param {number} seq */
  takeRequest(id, changes, seq) {
    this.cache.takeRequest(id, changes);
    if (changes.prev !== undefined || !this.ahead.has(id))
      listIn(this.ahead, id).push({ seq, who: changes.prev ?? "" });
  }

  /** @param {EventRecord} event */
  takeEvent(event) {
    const { facts, seq } = event;
    if (DECIDE.has(event.type)) this.decided(event);
    const numbers = TAKE.get(event.type)?.(this, event, facts);
    if (numbers && Object.keys(numbers).length > 0) this.numbers.set(seq, numbers);
    const ofReset = event.type === "prefix_cache_reset" ? numbers?.blocks : undefined;
    for (const block of ofReset ?? blocksOf(event)) listIn(this.blocks, block).push(event);
  }

  /** @param {EventRecord} event that tells a decision */
  decided(event) {
    const { step, facts } = event;
    if (!this.events.has(step)) this.steps.push(step);
    listIn(this.events, step).push(event);
    const { request } = facts;
    if (request !== undefined && !this.begins.has(request))
      this.begins.set(request, this.steps.length - 1);
  }

  /** @param {string} id @param {number} seq @param {Status} status @param {number} step */
  stand(id, seq, status, step) {
    listIn(this.standings, id).push({ seq, status, step });
  }

  // -- requests ----------------------------------------------------------------------------------

  /** @param {EventRecord} event @param {string} request @returns {Numbers} */
  waited(event, request) {
    const standing = this.standing(request, event.seq);
    return standing ? { waited: event.step - standing.step } : {};
  }

  /**
   * First shares tell the seat, and what a resumed request still had.
   * @param {EventRecord} event @param {any} facts @returns {Numbers|null}
   */
  share(event, { request, kind, num_tokens: tokens }) {
    this.given.set(request, { step: event.step, tokens });
    if (kind === "running") return null;
    this.running.add(request);
    /** @type {Numbers} */
    const numbers = { seat: this.running.size, ...this.waited(event, request) };
    if (kind === "resumed") {
      numbers.computed = this.computed.get(request) ?? 0;
      numbers.own_hits = (this.cache.ownHits.get(request) ?? 0) * this.blockSize;
    }
    this.stand(request, event.seq, "running", event.step);
    return numbers;
  }

  /**
   * What this step had given it already, and takes back.
   * @param {EventRecord} event @param {any} facts @returns {Numbers|null}
   */
  preempted(event, { request, by, num_computed_tokens: computed }) {
    this.running.delete(request);
    this.computed.set(request, computed);
    this.stand(request, event.seq, "waiting", event.step);
    if (by) {
      const others = this.victims.step === event.step ? this.victims.who : [];
      this.victims = { step: event.step, who: [...others, request] };
    }
    const given = this.given.get(request);
    return given?.step === event.step ? { taken_back: given.tokens } : null;
  }

  /** @param {EventRecord} event @param {any} facts @returns {Numbers} */
  stopped(event, { request }) {
    const numbers = this.waited(event, request);
    const { reason } = event;
    if (reason?.code === "does_not_fit")
      numbers.short = reason.needs + reason.watermark - reason.free;
    return { ...numbers, ...this.whoseFault(event) };
  }

  /**
   * Who was preempted, where that is why nobody gets anything any more.
   * @param {EventRecord} event @returns {Numbers}
   */
  whoseFault({ step, reason }) {
    if (reason?.code !== "preempted_this_step") return {};
    return { victims: this.victims.step === step ? this.victims.who : [] };
  }

}

/** @type {Record<string, (o: Origins, e: EventRecord, facts: any) => Numbers|null|void>} */
const TAKERS = {
  request_arrived: (o, e, f) => o.stand(f.request, e.seq, "waiting", e.step),
  request_scheduled: (o, e, f) => o.share(e, f),
  request_passed_over: (o, e) => o.whoseFault(e),
  request_preempted: (o, e, f) => o.preempted(e, f),
  admission_stopped: (o, e, f) => o.stopped(e, f),
  request_finished: (o, e, f) => {
    o.running.delete(f.request);
    o.stand(f.request, e.seq, "gone", e.step);
  },
  token_appended: (o, _, f) => o.cache.appended(f),
  prefix_looked_up: (o, e, f) => o.cache.lookedUp(e, f),
  blocks_hit: (o, _, f) => {
    const holders = o.cache.hold(f);
    return holders.length > 0 ? { holders } : {};
  },
  blocks_allocated: (o, _, f) => {
    o.cache.hold(f);
  },
  block_evicted: (o, e, f) => o.cache.evicted(e, f),
  blocks_cached: (o, e, f) => o.cache.cached(e, f),
  blocks_uncached: (o, e, f) => {
    for (const block of f.blocks) o.cache.leave(block, "uncached", e.step, "");
  },
  blocks_freed: (o, e, f) => o.cache.freed(e, f),
  prefix_cache_reset: (o, e, f) => o.cache.reset(e, f),
};

const TAKE = new Map(Object.entries(TAKERS));
const DECIDE = new Set(Object.keys(DECISIONS));

/**
 * The last of `list` at or before `seq`.
 * @template {{seq: number}} T
 * @param {T[]|undefined} list @param {number} seq @returns {T|null}
 */
function lastUpTo(list, seq) {
  if (!list) return null;
  return list[atOrBefore(list.length, (k) => list[k].seq, seq)] ?? null;
}

/** @template K, V @param {Map<K, V[]>} map @param {K} key @returns {V[]} */
function listIn(map, key) {
  const list = map.get(key) ?? [];
  if (list.length === 0) map.set(key, list);
  return list;
}
