// @ts-check
/** What boxes are drawn of: the state at the cursor, and the events of the step there by type. */
import { entryOfLane } from "../core/lanes.js";

/** @import { EventRecord, Lane } from "../core/records.js" */
/** @import { Store } from "../core/store.js" */
/** @import { Status } from "../core/trace_index.js" */

/** What runs a step: boxes of the executor's thread, where there are two. */
const EXECUTOR = new Set(["gpu-runner", "cuda-graph", "paged-attn", "physical-vram", "shared-gqa"]);

/** What boxes share: the state and the events of the step at the cursor, by type. */
export class Moment {
  /** @param {Store} store @param {Lane} lane whose step, where the two threads have one each */
  constructor(store, lane) {
    this.header = store.header ?? { config: {}, model: {} };
    this.config = this.header.config ?? {};
    this.model = this.header.model ?? {};
    this.state = store.state ?? {};
    this.entry = entryOfLane(store, lane);
    /** @type {Map<string, EventRecord[]>} */
    this.events = new Map();
    for (const event of this.entry ? store.eventsOfStep(this.entry) : []) {
      const list = this.events.get(event.type);
      if (list) list.push(event);
      else this.events.set(event.type, [event]);
    }
    this.requests = countByStatus(this.state.requests ?? {});
  }

  /** @param {string} type @returns {any} facts of the last event of a type in this step */
  last(type) {
    return this.events.get(type)?.at(-1)?.facts ?? null;
  }

  /**
   * A text that changes with what these events of this step are, for whoever draws of them alone.
   * @param {string[]} types
   */
  key(...types) {
    const { trace_id: trace, base_seq: base } = this.header;
    const last = types.map((type) => this.events.get(type)?.at(-1)?.seq ?? "");
    return `${trace} ${base} ${this.entry?.step} ${last.join(" ")}`;
  }

  /** @param {string} type @returns {EventRecord[]} */
  all(type) {
    return this.events.get(type) ?? [];
  }
}

/** @param {Record<string, any>} requests */
function countByStatus(requests) {
  /** @type {Record<Status, number>} */
  const result = { submitted: 0, waiting: 0, running: 0, preempted: 0, finished: 0 };
  for (const id in requests) result[/** @type {Status} */ (requests[id].status)] += 1;
  return { ...result, open: result.submitted + result.waiting + result.running + result.preempted };
}

/**
 * The moment as it is for each box.
 * @param {Store} store @returns {(name: string|null) => Moment}
 */
export function moments(store) {
  const engine = new Moment(store, "engine");
  const executor = store.overlaps ? new Moment(store, "executor") : engine;
  return (name) => (EXECUTOR.has(name ?? "") ? executor : engine);
}
