// @ts-check
/**
 * Why a request got what it got: the decisions of a step about it, in order. The counterpart of
 * engine/why.py.
 */

/** @import { Numbers, Origins } from "./origins.js" */
/** @import { EventRecord } from "./records.js" */

/** @typedef {{decision: string, event: EventRecord, numbers: Numbers}} Why one decision */

/** Which events tell a decision about a request, and which. @type {Record<string, string>} */
export const DECISIONS = {
  request_submitted: "submitted",
  request_refused: "refused",
  request_arrived: "queued",
  request_aborted: "aborted",
  prefix_cache_reset: "reset",
  prefix_looked_up: "looked_up",
  blocks_hit: "hit",
  block_evicted: "evicted",
  blocks_allocated: "allocated",
  blocks_cached: "cached",
  blocks_uncached: "uncached",
  blocks_left_uncomputed: "left_uncomputed",
  blocks_freed: "freed",
  request_scheduled: "scheduled",
  drafts_scheduled: "drafts",
  drafts_dropped: "lost_drafts",
  drafts_settled: "settled",
  request_passed_over: "passed_over",
  request_preempted: "preempted",
  admission_stopped: "kept_waiting",
  token_dropped: "dropped",
  request_finished: "finished",
};

/** @type {Map<string, string>} */
const FIRST_SHARES = new Map([
  ["new", "admitted"],
  ["resumed", "resumed"],
]);
/** Those behind a passed-over request get nothing either where this is why. */
const ENDS_THE_STEP = new Set(["budget_spent", "preempted_this_step"]);

/**
 * @param {Origins} origins @param {string} request @param {number} step
 * @returns {Why[]} all decisions of a step about a request
 */
export function decisionsAbout(origins, request, step) {
  const found = [];
  for (const event of origins.events.get(step) ?? []) {
    const item = aboutRequest(origins, event, request);
    if (item) found.push(item);
  }
  return found;
}

/**
 * What an event decides, of whom it names first.
 * @param {Origins} origins @param {EventRecord} event @returns {Why}
 */
export function asTold(origins, event) {
  const own = event.type === "request_scheduled" ? FIRST_SHARES.get(event.facts.kind) : undefined;
  const numbers = origins.numbers.get(event.seq) ?? {};
  return { decision: own ?? DECISIONS[event.type] ?? event.type, event, numbers };
}

/**
 * What an event decides about a request, also where it names another.
 * @param {Origins} origins @param {EventRecord} event @param {string} request @returns {Why|null}
 */
function aboutRequest(origins, event, request) {
  const { type, facts } = event;
  const told = asTold(origins, event);
  if (facts.request === request) return told;
  if (type === "request_preempted")
    return facts.by === request ? { ...told, decision: "made_room" } : null;
  if (type === "admission_stopped") {
    if (origins.standing(request, event.seq)?.status !== "waiting") return null;
    const numbers = { ...told.numbers, ...origins.placeInQueue(request, event) };
    return { decision: "behind", event, numbers };
  }
  if (type === "request_passed_over" && runsBehind(origins, event, request))
    return { ...told, decision: "skipped" };
  return null;
}

/**
 * Whether a running request is one of those that get nothing because of this passing over.
 * @param {Origins} origins @param {EventRecord} event @param {string} request
 */
function runsBehind(origins, event, request) {
  if (!ENDS_THE_STEP.has(event.reason?.code ?? "")) return false;
  if (origins.standing(request, event.seq)?.status !== "running") return false;
  return !(origins.events.get(event.step) ?? []).some(
    ({ type, facts }) =>
      facts.request === request && (type === "request_scheduled" || type === "request_passed_over"),
  );
}
