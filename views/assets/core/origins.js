// @ts-check
/**
 * What the log says of an event's past: who cached that content, who holds it, who is ahead.
 *
 * The counterpart of engine/origins.py, record by record as they come; a test compares the two.
 */
import { blocksOf } from "./records.js";
import { atOrBefore } from "./sorted.js";
import { DECISIONS } from "./why.js";

/** @import { EventRecord, LogRecord, PatchRecord, Reason } from "./records.js" */
/** @import { Store } from "./store.js" */

/**
 * @typedef {Record<string, any>} Numbers what an event alone does not have, as it stood then
 * @typedef {{hash: string, parent: string, request: string, logical: number, step: number}}
 *   Content what a block has cached, and who entered it ("" where the log does not go back so far)
 * @typedef {{content: Content, how: string, step: number, to: string}}
 *   Lost content that no block had any more
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
    /** @type {Map<number, Content>} by block */
    this.content = new Map();
    /** @type {Map<string, Set<number>>} blocks of a hash */
    this.copies = new Map();
    /** @type {Map<string, Set<number>>} blocks by the hash of the block before */
    this.following = new Map();
    /** @type {Map<string, Lost>} by hash */
    this.lost = new Map();
    /** @type {Map<number, Set<string>>} of a block */
    this.holders = new Map();
    /** @type {Map<number, number>} of a block: the step in which its last holder let go */
    this.unusedSince = new Map();
    /** @type {Map<string, number>} tokens that a request had when it was preempted */
    this.computed = new Map();
    /** @type {Map<string, number>} blocks of its own content at its latest look-up */
    this.ownHits = new Map();
    /** @type {Map<string, {step: number, tokens: number}>} a request's latest share */
    this.given = new Map();
    /** @type {{step: number, who: string[]}} */
    this.victims = { step: -1, who: [] };
    /** @type {Map<string, number[]>} */
    this.prompts = new Map();
    /** @type {Map<string, string>} */
    this.salts = new Map();
    /** @type {Map<string, number[]>} */
    this.outputs = new Map();
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
   * The state before the first record: who holds what is known, its past is not.
   * @param {any} state @param {number} seq
   */
  begin(state, seq) {
    const step = state?.engine?.step ?? 0;
    for (const [id, request] of Object.entries(state?.requests ?? {})) {
      this.takeRequest(id, request, seq);
      this.outputs.set(id, Object.values(request.output_token_ids ?? {}));
      this.begins.set(id, 0);
      if (request.status === "running") {
        this.stand(id, seq, "running", step);
        this.running.add(id);
      } else if (request.status === "waiting" || request.status === "preempted") {
        this.stand(id, seq, "waiting", step);
      }
      for (const block of Object.values(request.block_table ?? {}))
        setIn(this.holders, block).add(id);
    }
    for (const [id, block] of Object.entries(state?.blocks ?? {})) {
      if (block.hash !== undefined)
        this.enter(Number(id), { hash: block.hash, parent: "?", request: "", logical: 0, step });
    }
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
    if (changes.prompt_token_ids) {
      this.prompts.set(id, changes.prompt_token_ids);
      this.salts.set(id, changes.cache_salt ?? "");
    }
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
      numbers.own_hits = (this.ownHits.get(request) ?? 0) * this.blockSize;
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

  /**
   * The tokens of a full block of a request's table; [] where the log has not all of them.
   * @param {string} request @param {number} logical @returns {number[]}
   */
  tokens(request, logical) {
    const prompt = this.prompts.get(request) ?? [];
    const output = this.outputs.get(request) ?? [];
    const [first, last] = [logical * this.blockSize, (logical + 1) * this.blockSize];
    const tokens = prompt.slice(first, last);
    tokens.push(
      ...output.slice(Math.max(0, first - prompt.length), Math.max(0, last - prompt.length)),
    );
    return tokens.length === this.blockSize ? tokens : [];
  }

  // -- blocks ------------------------------------------------------------------------------------

  /** @param {EventRecord} event @param {any} facts @returns {Numbers} */
  lookedUp({ reason }, facts) {
    /** @type {Map<string, number>} */
    const sources = new Map();
    for (const block of facts.hit_blocks) {
      const name = this.content.get(block)?.request ?? "";
      sources.set(name, (sources.get(name) ?? 0) + 1);
    }
    this.ownHits.set(facts.request, sources.get(facts.request) ?? 0);
    return {
      ...(sources.size > 0 ? { sources: [...sources] } : {}),
      ...(reason?.code === "first_miss" ? this.missed(facts, reason) : {}),
    };
  }

  /**
   * What became of the content that missed, or where the nearest cached content differs.
   * @param {any} facts @param {Reason} reason @returns {Numbers}
   */
  missed(facts, reason) {
    const lost = this.lost.get(reason.hash);
    if (lost) {
      return {
        miss: lost.how,
        cached_by: lost.content.request,
        cached_step: lost.content.step,
        lost_step: lost.step,
        lost_to: lost.to,
      };
    }
    const before = this.content.get(facts.hit_blocks[facts.hit_blocks.length - 1])?.hash ?? "";
    const following = this.following.get(before) ?? new Set();
    return this.parting(facts.request, reason.block, following) ?? { miss: "new" };
  }

  /**
   * The first token that differs from the cached block that has most tokens in common. Content of
   * another salt is no nearer for having some; it has to have them all.
   * @param {string} request @param {number} logical @param {Set<number>} following
   * @returns {Numbers|null}
   */
  parting(request, logical, following) {
    const tokens = this.tokens(request, logical);
    const salt = this.salts.get(request);
    let [most, nearest, theirs] = [-1, -1, tokens];
    for (const block of following) {
      const { request: other, logical: place } = /** @type {Content} */ (this.content.get(block));
      const others = this.tokens(other, place);
      const same = numCommon(tokens, others);
      const mayHit = this.salts.get(other) === salt || same === tokens.length;
      if (others.length > 0 && mayHit && same > most)
        [most, nearest, theirs] = [same, block, others];
    }
    if (tokens.length === 0 || nearest < 0) return null;
    const numbers = { other: this.content.get(nearest)?.request, block: nearest };
    if (most === tokens.length) return { miss: "salted", ...numbers };
    return {
      miss: "parted",
      position: logical * this.blockSize + most,
      token: tokens[most],
      other_token: theirs[most],
      ...numbers,
    };
  }

  /**
   * A request takes blocks; returns who held some of them before.
   * @param {any} facts of blocks_hit or blocks_allocated @returns {string[]}
   */
  hold({ request, blocks }) {
    /** @type {Set<string>} */
    const others = new Set();
    for (const block of blocks) {
      const holders = setIn(this.holders, block);
      for (const other of holders) others.add(other);
      holders.add(request);
    }
    return [...others];
  }

  /** @param {EventRecord} event @param {any} facts @returns {Numbers} */
  freed({ step }, { request, blocks, returned }) {
    /** @type {Set<string>} */
    const others = new Set();
    for (const block of blocks) {
      const holders = setIn(this.holders, block);
      holders.delete(request);
      for (const other of holders) others.add(other);
    }
    for (const block of returned) this.unusedSince.set(block, step);
    const kept = returned.filter((/** @type {number} */ block) => this.content.has(block)).length;
    return { kept, holders: [...others] };
  }

  /** @param {EventRecord} event @param {any} facts @returns {Numbers} */
  evicted({ step }, { block, request }) {
    const content = this.content.get(block);
    const unused = this.unusedSince.get(block);
    this.leave(block, "evicted", step, request);
    return {
      ...(content && {
        cached_by: content.request,
        cached_step: content.step,
        logical: content.logical,
      }),
      ...(unused !== undefined && { unused_since: unused }),
    };
  }

  /** @param {EventRecord} event @param {any} facts @returns {Numbers} */
  cached({ step }, { request, first_index: first, parent, blocks, hashes }) {
    /** @type {Set<number>} */
    const copies = new Set();
    let before = parent;
    for (const [n, block] of blocks.entries()) {
      const hash = hashes[n] ?? "";
      for (const copy of setIn(this.copies, hash)) copies.add(copy);
      this.enter(block, { hash, parent: before, request, logical: first + n, step });
      before = hash;
    }
    return copies.size > 0 ? { copies: [...copies] } : {};
  }

  /** @param {EventRecord} event @param {any} facts @returns {Numbers|null} */
  reset({ step }, { done }) {
    if (!done) return null;
    const blocks = [...this.content.keys()];
    for (const block of blocks) this.leave(block, "reset", step, "");
    return { blocks };
  }

  /** @param {number} block @param {Content} content */
  enter(block, content) {
    // There is something to replace only in a log that no engine wrote.
    this.leave(block, "replaced", content.step, "");
    this.content.set(block, content);
    setIn(this.copies, content.hash).add(block);
    setIn(this.following, content.parent).add(block);
  }

  /** @param {number} block @param {string} how @param {number} step @param {string} to */
  leave(block, how, step, to) {
    const content = this.content.get(block);
    if (!content) return;
    this.content.delete(block);
    const copies = setIn(this.copies, content.hash);
    copies.delete(block);
    setIn(this.following, content.parent).delete(block);
    if (copies.size === 0) this.lost.set(content.hash, { content, how, step, to });
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
  token_appended: (o, _, f) => {
    listIn(o.outputs, f.request).push(f.token);
  },
  prefix_looked_up: (o, e, f) => o.lookedUp(e, f),
  blocks_hit: (o, _, f) => {
    const holders = o.hold(f);
    return holders.length > 0 ? { holders } : {};
  },
  blocks_allocated: (o, _, f) => {
    o.hold(f);
  },
  block_evicted: (o, e, f) => o.evicted(e, f),
  blocks_cached: (o, e, f) => o.cached(e, f),
  blocks_uncached: (o, e, f) => {
    for (const block of f.blocks) o.leave(block, "uncached", e.step, "");
  },
  blocks_freed: (o, e, f) => o.freed(e, f),
  prefix_cache_reset: (o, e, f) => o.reset(e, f),
};

const TAKE = new Map(Object.entries(TAKERS));
const DECIDE = new Set(Object.keys(DECISIONS));

/** @param {number[]} tokens @param {number[]} others how many they have in common at the start */
function numCommon(tokens, others) {
  const end = Math.min(tokens.length, others.length);
  let n = 0;
  while (n < end && tokens[n] === others[n]) n += 1;
  return n;
}

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

/** @template K, V @param {Map<K, Set<V>>} map @param {K} key @returns {Set<V>} */
function setIn(map, key) {
  let set = map.get(key);
  if (!set) map.set(key, (set = new Set()));
  return set;
}
