// @ts-check
/**
 * The events of a trace, put in order once: by step, by request, by block.
 *
 * The panels ask for "who got what in step 7" sixty times a second. The index reads each record
 * once, when it comes, and is thrown away with its trace. It holds what events say and nothing that
 * they do not; what the engine's state is at the cursor, the store knows.
 */
import { registerRequests } from "../words/colours.js";
import { blocksOf, laneOf, shareKind } from "./records.js";
import { atOrBefore } from "./sorted.js";

/** @import { EventRecord, Lane, Reason } from "./records.js" */
/** @import { Store } from "./store.js" */

/** @typedef {"submitted" | "waiting" | "running" | "preempted" | "finished"} Status */

/**
 * A request's share of a step's budget.
 * @typedef {Object} Share
 * @property {number} i index of its event in store.records
 * @property {string} request
 * @property {"prefill" | "decode"} kind
 * @property {number} tokens
 * @property {number} from computed before
 * @property {number} known
 * @property {Reason} [reason]
 * @property {number} [takenBack] index of the event that took it back
 */
/**
 * @typedef {{i: number, step: number, phase: string, reason?: Reason, facts: Record<string, any>}}
 *   Mark
 */
/**
 * `step` is the newest that had begun: a step behind it may end what it has scheduled already.
 * @typedef {{step: number, status: Status, i: number}} Change
 */
/** @typedef {{i: number, t_us: number, step: number, text: string, index: number}} Emission */

/**
 * @typedef {Object} Row what became of one request
 * @property {string} id
 * @property {number | undefined} promptTokens
 * @property {{i: number, t_us: number, step: number} | null} submitted
 * @property {Change[]} changes of its status, in order
 * @property {Map<number, Share>} shares by step
 * @property {number} lastShare the newest step with a share
 * @property {Map<number, Mark>} preempted by step
 * @property {Map<number, Mark>} passedOver by step
 * @property {Map<number, Mark>} stopped by step: it was the head of the queue, and not admitted
 * @property {Map<number, Mark>} dropped by step: its token came too late
 * @property {Map<number, Mark>} proposed by step: drafts, for the next
 * @property {Map<number, Mark>} verified by step: what became of its drafts
 * @property {Mark | null} end
 * @property {Emission[]} tokens appended
 * @property {Emission[]} texts sent
 */

/**
 * A phase that ran, on one of two threads.
 * @typedef {Object} Run
 * @property {number} i index of the patch that ended it
 * @property {Lane} lane
 * @property {number} step
 * @property {string} phase
 * @property {number} start its measured interval
 * @property {number} end
 * @property {number} both time in which both threads were in some phase, up to its end
 */

/**
 * @typedef {Object} StepFacts
 * @property {number} step
 * @property {Share[]} shares
 * @property {EventRecord | null} batch
 * @property {EventRecord | null} dispatch
 * @property {number} captureUs what capturing a graph took of its execution
 * @property {number} ran index of the record from which on its forward has run
 * @property {Map<string, {us: number, i: number}>} phases measured time of each phase
 */

/** @type {WeakMap<object, TraceIndex>} */
const indexes = new WeakMap();

/**
 * The index of the store's trace, brought up to its last record.
 * @param {Store} store
 * @returns {TraceIndex}
 */
export function traceIndex(store) {
  let index = indexes.get(store);
  if (!index || !index.continues(store)) {
    index = new TraceIndex(store);
    indexes.set(store, index);
  }
  index.read(store.records);
  return index;
}

/** The order of arrival outlives the index where only the oldest records were forgotten. */
let lastTraceId = "";

export class TraceIndex {
  /** @param {Store} store */
  constructor(store) {
    this.traceId = store.header?.trace_id;
    this.first = store.records[0];
    this.length = 0;
    /** @type {Map<number, StepFacts>} */
    this.steps = new Map();
    this.firstStep = Infinity;
    this.lastStep = -Infinity;
    /** @type {Map<string, Row>} */
    this.rows = new Map();
    /** @type {Map<string, number[]>} indexes of the events about each request */
    this.requests = new Map();
    /** @type {Map<number, number[]>} indexes of the events about each block */
    this.blocks = new Map();
    /**
     * @type {{start: number, end: number, before: number}[]} when some phase of a step ran, in
     * order, and how long some had run before
     */
    this.busy = [];
    this.overlaps = store.overlaps;
    /** @type {Run[]} where steps overlap, all their phases in the order of their ends */
    this.runs = [];
    /** @type {Map<string, {i: number, us: number}[]>} replays of each graph, by mode and size */
    this.replays = new Map();
    /** @type {{i: number, mode: string}[]} */
    this.modes = [{ i: -1, mode: store.header?.state?.engine?.mode ?? "paused" }];
    if (!store.isBeside) {
      registerRequests([], this.traceId !== lastTraceId);
      lastTraceId = this.traceId;
    }
    this.takeBase(store.header?.state?.requests ?? {}, store.header?.state?.engine?.step ?? 0);
  }

  /**
   * Requests that were there before the first record.
   * @param {Record<string, any>} requests @param {number} step
   */
  takeBase(requests, step) {
    for (const [id, request] of Object.entries(requests)) {
      const row = this.row(id);
      row.promptTokens = request.num_prompt_tokens;
      row.changes.push({ step: step - 1, status: request.status, i: -1 });
      if (request.status === "finished") {
        const facts = { finish_reason: request.finish_reason };
        row.end = { i: -1, step: step - 1, phase: "", facts };
      }
    }
  }

  /** Whether the store still shows the trace that this index was made of. @param {Store} store */
  continues(store) {
    if (store.header?.trace_id !== this.traceId || store.records.length < this.length) return false;
    return this.length === 0 || store.records[0] === this.first;
  }

  /** @param {any[]} records */
  read(records) {
    if (this.length === 0) this.first = records[0];
    for (let i = this.length; i < records.length; i += 1) {
      const record = records[i];
      if (record.kind === "patch") this.takePatch(record, i);
      else this.takeEvent(record, i);
    }
    this.length = records.length;
  }

  /** @param {string} id @returns {Row} */
  row(id) {
    let row = this.rows.get(id);
    if (!row) {
      row = {
        id,
        promptTokens: undefined,
        submitted: null,
        changes: [],
        shares: new Map(),
        lastShare: -Infinity,
        preempted: new Map(),
        passedOver: new Map(),
        stopped: new Map(),
        dropped: new Map(),
        proposed: new Map(),
        verified: new Map(),
        end: null,
        tokens: [],
        texts: [],
      };
      this.rows.set(id, row);
      registerRequests([id]);
    }
    return row;
  }

  /** @param {number} step @returns {StepFacts} */
  step(step) {
    let facts = this.steps.get(step);
    if (!facts) {
      facts = {
        step,
        shares: [],
        batch: null,
        dispatch: null,
        captureUs: 0,
        ran: Infinity,
        phases: new Map(),
      };
      this.steps.set(step, facts);
      this.firstStep = Math.min(this.firstStep, step);
      this.lastStep = Math.max(this.lastStep, step);
    }
    return facts;
  }

  /** @param {any} patch @param {number} i */
  takePatch(patch, i) {
    const mode = patch.changes.engine?.mode;
    if (mode) this.modes.push({ i, mode });
    if (patch.phase === "command") return;
    const us = patch.duration_us ?? 0;
    const step = this.step(patch.step);
    step.phases.set(patch.phase, { us, i });
    if (patch.phase === "execute") step.ran = Math.min(step.ran, i);
    this.takeTime(patch.t_us - us, patch.t_us);
    if (this.overlaps) this.takeRun(patch, patch.t_us - us, i);
  }

  /** @param {any} patch @param {number} start @param {number} i */
  takeRun({ phase, step, t_us: end }, start, i) {
    const lane = laneOf(phase);
    let both = this.runs[this.runs.length - 1]?.both ?? 0;
    for (let k = this.runs.length - 1; k >= 0 && this.runs[k].end > start; k -= 1) {
      const other = this.runs[k];
      if (other.lane !== lane) both += Math.min(end, other.end) - Math.max(start, other.start);
    }
    this.runs.push({ i, lane, step, phase, start, end, both });
  }

  /** What touches or overlaps becomes one. @param {number} start @param {number} end */
  takeTime(start, end) {
    const { busy } = this;
    while (busy.length && busy[busy.length - 1].end >= start) {
      const last = /** @type {{start: number, end: number}} */ (busy.pop());
      start = Math.min(start, last.start);
      end = Math.max(end, last.end);
    }
    const last = busy[busy.length - 1];
    busy.push({ start, end, before: last ? last.before + last.end - last.start : 0 });
  }

  /** @param {EventRecord} event @param {number} i */
  takeEvent(event, i) {
    const take = TAKE[event.type];
    if (event.phase !== "command") this.step(event.step);
    if (take) take(this, event, i);
    if (typeof event.facts.request === "string") push(this.requests, event.facts.request, i);
    for (const block of blocksOf(event)) push(this.blocks, block, i);
  }

  /**
   * What happened to a request, up to the cursor.
   * @param {Store} store @param {string} id @returns {EventRecord[]}
   */
  historyOf(store, id) {
    const about = this.requests.get(id) ?? [];
    const end = atOrBefore(about.length, (k) => about[k], store.cursor) + 1;
    return about.slice(0, end).map((i) => /** @type {EventRecord} */ (store.records[i]));
  }

  /**
   * The last event about a block at or before `cursor`.
   * @param {number} block @param {number} cursor
   */
  lastAbout(block, cursor) {
    const about = this.blocks.get(block) ?? [];
    const place = atOrBefore(about.length, (k) => about[k], cursor);
    return place < 0 ? -1 : about[place];
  }

  /**
   * Time in which the engine was inside some phase of a step, up to a moment: pauses between do
   * not count, and two phases at once count once.
   * @param {number} t_us
   */
  engineTime(t_us) {
    const { busy } = this;
    const last = busy[atOrBefore(busy.length, (k) => busy[k].start, t_us)];
    return last ? last.before + Math.min(t_us, last.end) - last.start : 0;
  }

  /**
   * Whether the engine stood still by command between two records.
   * @param {number} from @param {number} to
   */
  pausedBetween(from, to) {
    const place = atOrBefore(this.modes.length, (k) => this.modes[k].i, from);
    if (this.modes[place]?.mode === "paused") return true;
    return this.modes.some(
      (change) => change.i > from && change.i <= to && change.mode === "paused",
    );
  }

  /**
   * A request's status at the end of a step.
   * @param {Row} row @param {number} step @returns {Change | null}
   */
  statusAt(row, step) {
    const place = atOrBefore(row.changes.length, (k) => row.changes[k].step, step);
    return place < 0 ? null : row.changes[place];
  }
}

/**
 * @template K, V
 * @param {Map<K, V[]>} lists @param {K} key @param {V} value
 */
function push(lists, key, value) {
  const list = lists.get(key);
  if (list) list.push(value);
  else lists.set(key, [value]);
}

/** @param {Row} row @param {EventRecord} event @param {number} i @param {Status} status */
function become(row, event, i, status) {
  const last = row.changes[row.changes.length - 1];
  const step = Math.max(event.step, last?.step ?? 0);
  if (last?.status !== status) row.changes.push({ step, status, i });
}

/** @param {EventRecord} event @param {number} i @returns {Mark} */
function mark(event, i) {
  const { step, phase, reason, facts } = event;
  return { i, step, phase, reason, facts };
}

/**
 * Tokens of a step that has not run are not computed once their request is out of it. Where steps
 * overlap, a command takes nobody out of one: it runs whole.
 * @param {TraceIndex} index @param {Row} row @param {EventRecord} event @param {number} i
 */
function takeBack(index, row, event, i) {
  if (index.overlaps && event.phase === "command") return;
  const share = row.shares.get(event.step);
  if (share && !index.step(event.step).phases.has("execute")) share.takenBack = i;
}

/** @type {Record<string, (index: TraceIndex, event: EventRecord, i: number) => void>} */
const TAKE = {
  graph_replayed(index, event, i) {
    const { mode, num_padded_tokens: size } = event.facts;
    push(index.replays, `${mode} ${size}`, { i, us: event.duration_us ?? 0 });
  },
  forward_run(index, event, i) {
    const step = index.step(event.step);
    step.ran = Math.min(step.ran, i);
  },
  request_submitted(index, event, i) {
    const row = index.row(event.facts.request);
    row.promptTokens = event.facts.num_prompt_tokens;
    row.submitted = { i, t_us: event.t_us, step: event.step };
    become(row, event, i, "submitted");
  },
  request_arrived(index, event, i) {
    const row = index.row(event.facts.request);
    row.promptTokens = event.facts.num_prompt_tokens;
    become(row, event, i, "waiting");
  },
  request_scheduled(index, event, i) {
    const f = event.facts;
    const row = index.row(f.request);
    become(row, event, i, "running");
    /** @type {Share} */
    const share = {
      i,
      request: f.request,
      kind: shareKind(f, row.promptTokens),
      tokens: f.num_tokens,
      from: f.num_computed_tokens,
      known: f.num_known_tokens,
      reason: event.reason,
    };
    row.shares.set(event.step, share);
    row.lastShare = Math.max(row.lastShare, event.step);
    index.step(event.step).shares.push(share);
  },
  request_preempted(index, event, i) {
    const row = index.row(event.facts.request);
    become(row, event, i, "preempted");
    row.preempted.set(event.step, mark(event, i));
    takeBack(index, row, event, i);
  },
  request_aborted(index, event, i) {
    takeBack(index, index.row(event.facts.request), event, i);
  },
  request_passed_over(index, event, i) {
    index.row(event.facts.request).passedOver.set(event.step, mark(event, i));
  },
  admission_stopped(index, event, i) {
    index.row(event.facts.request).stopped.set(event.step, mark(event, i));
  },
  request_finished(index, event, i) {
    const row = index.row(event.facts.request);
    become(row, event, i, "finished");
    row.end = mark(event, i);
  },
  token_dropped(index, event, i) {
    index.row(event.facts.request).dropped.set(event.step, mark(event, i));
  },
  drafts_proposed(index, event, i) {
    index.row(event.facts.request).proposed.set(event.step, mark(event, i));
  },
  drafts_verified(index, event, i) {
    index.row(event.facts.request).verified.set(event.step, mark(event, i));
  },
  token_appended(index, event, i) {
    const { request, token, num_tokens } = event.facts;
    const row = index.row(request);
    row.tokens.push({
      i,
      t_us: event.t_us,
      step: event.step,
      text: `#${token}`,
      index: num_tokens,
    });
  },
  text_emitted(index, event, i) {
    const { request, text, output_index: place } = event.facts;
    index.row(request).texts.push({ i, t_us: event.t_us, step: event.step, text, index: place });
  },
  batch_scheduled(index, event) {
    index.step(event.step).batch = event;
  },
  step_dispatched(index, event) {
    index.step(event.step).dispatch = event;
  },
  graph_captured(index, event) {
    if (!event.facts.shared) index.step(event.step).captureUs = event.duration_us ?? 0;
  },
};
