// @ts-check
/** What the panel of requests over steps shows, from the log alone. */
import { computedAt } from "../core/computed.js";
import { once } from "../core/once.js";
import { draftsBehind, latestDrafts, tallyOf } from "../core/speculation.js";
import { timingOf } from "../core/timing.js";
import { hasTexts, outputPieces, promptPieces } from "../core/tokens.js";
import { traceIndex } from "../core/trace_index.js";
import { lifecycleParts } from "../words/lifecycle.js";
import { reasonPhrase } from "../words/reasons.js";
import { atCursor, sentenceOf, stepOf } from "./cursor.js";

/** @import { Computed } from "../core/computed.js" */
/** @import { Store } from "../core/store.js" */
/** @import { Mark, Row, Share, TraceIndex } from "../core/trace_index.js" */

const MAX_STREAMS = 8;
export const MAX_PIECES = 240;

/**
 * @typedef {"prefill" | "decode" | "taken-back" | "submitted" | "waiting" | "preempted" | "idle"}
 *   CellKind
 */
/**
 * @typedef {Object} Cell one request in one step
 * @property {number} step
 * @property {CellKind | null} kind
 * @property {boolean} future recorded, but after the cursor
 * @property {number} seq of the event it comes from
 * @property {number} [tokens]
 * @property {number} [from]
 * @property {number} [known]
 * @property {string} [why]
 * @property {string} [stopped] it was the head of the queue and was not admitted
 * @property {string} [passedOver]
 * @property {string} [lost] it was preempted in this step
 * @property {{finish: string, why: string, late: number}} [end] `late`: steps in flight behind it
 * @property {true} [inFlight] scheduled, and its outcome is not known yet
 * @property {true} [late] it was scheduled before its request was found to have ended
 * @property {string} [dropped] why its token was not used
 * @property {{drafted: number, accepted: number}} [drafts] what became of its drafts
 */

/**
 * Sentence and streams are made when they are asked for: words are drawn more seldom than pictures.
 * @param {Store} store
 * @param {{from: number, to: number}} [window] steps wanted; all by default
 */
export function model(store, window) {
  const index = traceIndex(store);
  const { step, share, command } = atCursor(store);
  const empty = index.steps.size === 0;
  const from = Math.max(window?.from ?? -Infinity, empty ? 0 : index.firstStep);
  const to = Math.min(window?.to ?? Infinity, empty ? -1 : index.lastStep);
  const parts = once(() => sentence(store));
  const streams = once(() => streamsOf(store, index));
  return {
    get sentence() {
      return parts();
    },
    budget: store.header?.config?.max_num_batched_tokens ?? 0,
    step,
    share,
    command,
    from,
    to,
    steps: budgetBars(store, index, from, to),
    rows: rowsOf(store, index, from, to, step),
    get streams() {
      return streams();
    },
    requests: Object.keys(store.state?.requests ?? {}).length,
  };
}

/** @param {Store} store @param {TraceIndex} index @param {number} from @param {number} to */
function budgetBars(store, index, from, to) {
  const bars = [];
  const inFlight = new Set(store.inFlight.map((each) => each.step));
  for (let step = from; step <= to; step += 1) {
    const facts = index.steps.get(step);
    if (!facts) continue;
    const shares = facts.shares.filter((share) => !isTakenBack(share, store.cursor));
    bars.push({
      step,
      future: facts.shares.length > 0 && facts.shares[0].i > store.cursor,
      inFlight: inFlight.has(step),
      segments: shares.map((share) => ({
        request: share.request,
        tokens: share.tokens,
        kind: share.kind,
        future: share.i > store.cursor,
      })),
    });
  }
  return bars;
}

/** @param {Share} share @param {number} cursor */
export function isTakenBack(share, cursor) {
  return share.takenBack !== undefined && (share.takenBack <= cursor || share.i > cursor);
}

/**
 * Those who have anything to show in a window of steps. Their cells are made when they are first
 * asked for: of many requests few are in sight.
 * @param {Store} store @param {TraceIndex} index @param {number} from @param {number} to
 * @param {number} step the cursor's
 */
function rowsOf(store, index, from, to, step) {
  const moment = {
    cursor: store.cursor,
    // The newest that has begun: the cursor's own may be one before it.
    step: Math.max(stepOf(store), store.log.newestAt(store.cursor)?.step ?? 0),
    inFlight: new Set(store.inFlight.map((each) => each.step)),
    base: store.header?.base_seq ?? 0,
  };
  const chosen = store.selection?.request ?? null;
  const rows = [];
  for (const row of index.rows.values()) {
    const first = row.changes[0];
    const last = lastStepOf(row);
    if (!first || first.step > to || last < from) continue;
    const [begin, end] = [Math.max(from, first.step), Math.min(to, last)];
    const cells = once(() =>
      stepsFrom(begin, end).map((each) => cellAt(index, row, each, moment)),
    );
    rows.push({
      id: row.id,
      selected: row.id === chosen,
      get cells() {
        return cells();
      },
      /** Whether it has something in the cursor's step. */
      get alive() {
        if (step < begin || step > end) return false;
        const { kind, future } = cellAt(index, row, step, moment);
        return kind !== null && !future;
      },
    });
  }
  return rows;
}

/**
 * Where steps overlap, one more may be in flight for a request that has ended.
 * @param {Row} row
 */
function lastStepOf(row) {
  return row.end ? Math.max(row.end.step, row.lastShare) : Infinity;
}

/** @param {number} first @param {number} last */
function stepsFrom(first, last) {
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => first + i);
}

/**
 * @param {TraceIndex} index @param {Row} row @param {number} step
 * @param {{cursor: number, step: number, inFlight: Set<number>, base: number}} moment
 * @returns {Cell}
 */
function cellAt(index, row, step, { cursor, step: at, inFlight, base }) {
  const share = row.shares.get(step);
  const change = index.statusAt(row, step);
  const i = share ? share.i : (change?.i ?? -1);
  /** @type {Cell} */
  const cell = { step, kind: null, future: i > cursor || step > at, seq: base + i };
  if (share) {
    cell.kind = isTakenBack(share, cursor) ? "taken-back" : share.kind;
    cell.tokens = share.tokens;
    cell.from = share.from;
    cell.known = share.known;
    cell.why = reasonPhrase(share.reason);
    if (inFlight.has(step) && !cell.future) cell.inFlight = true;
  } else if (change && change.status !== "finished") {
    cell.kind = change.status === "running" ? "idle" : change.status;
  }
  const stopped = row.stopped.get(step);
  if (stopped) cell.stopped = reasonPhrase(stopped.reason);
  const passed = row.passedOver.get(step);
  if (passed) cell.passedOver = reasonPhrase(passed.reason);
  const lost = row.preempted.get(step);
  if (lost && (lost.i <= cursor || cell.future)) cell.lost = preemptedBy(lost);
  const verified = row.verified.get(step);
  if (verified && (verified.i <= cursor || cell.future)) {
    const { drafts, num_accepted: accepted } = verified.facts;
    cell.drafts = { drafted: drafts.length, accepted };
  }
  const dropped = row.dropped.get(step);
  if (dropped && (dropped.i <= cursor || cell.future)) cell.dropped = reasonPhrase(dropped.reason);
  if (share && isLate(index, row, share, step) && (Number(row.end?.i) <= cursor || cell.future))
    cell.late = true;
  if (row.end?.step === step && (row.end.i <= cursor || cell.future)) {
    cell.end = {
      finish: row.end.facts.finish_reason ?? "",
      why: reasonPhrase(row.end.reason),
      late: lastStepOf(row) - step,
    };
  }
  return cell;
}

/**
 * Whether its request had ended before the step's tokens were taken in.
 * @param {TraceIndex} index @param {Row} row @param {Share} share @param {number} step
 */
function isLate(index, { end }, share, step) {
  if (!index.overlaps || !end || end.i < share.i) return false;
  const takenIn = index.steps.get(step)?.phases.get("update")?.i ?? Infinity;
  return takenIn > end.i && !(end.step === step && end.phase === "update");
}

/** @param {Mark} mark */
function preemptedBy(mark) {
  const why = reasonPhrase(mark.reason);
  return [mark.facts.by ? `for ${mark.facts.by}` : "", why].filter(Boolean).join(": ");
}

/**
 * The requests whose text is shown: the selected one, those alive and the last that ended, as many
 * as there is room for, in the order in which they arrived.
 */
function streamsOf(/** @type {Store} */ store, /** @type {TraceIndex} */ index) {
  const requests = store.state?.requests ?? {};
  const computed = computedAt(store);
  const chosen = store.selection?.request;
  const ids = [...index.rows.keys()].filter((id) => requests[id]);
  const rank = (/** @type {string} */ id) => {
    if (id === chosen) return 0;
    return requests[id].status === "finished" ? 2 : 1;
  };
  const alive = ids.filter((id) => rank(id) < 2).sort((a, b) => rank(a) - rank(b));
  const ended = ids.filter((id) => rank(id) === 2).reverse();
  const shown = new Set([...alive, ...ended].slice(0, MAX_STREAMS));
  return ids
    .filter((id) => shown.has(id))
    .map((id) => streamOf(store, index, id, requests[id], computed));
}

/**
 * @param {Store} store @param {TraceIndex} index @param {string} id @param {any} request
 * @param {(id: string) => Computed} computed
 */
function streamOf(store, index, id, request, computed) {
  const row = index.row(id);
  const step = stepOf(store);
  const share = row.shares.get(step);
  const current = share && share.i <= store.cursor && !isTakenBack(share, store.cursor);
  const stopped = row.stopped.get(step);
  return {
    id,
    parent: request.parent ?? "",
    status: request.status,
    why:
      request.status === "finished"
        ? (row.end && row.end.i <= store.cursor && reasonPhrase(row.end.reason)) || ""
        : (stopped && stopped.i <= store.cursor && reasonPhrase(stopped.reason)) || "",
    finish: request.finish_reason ?? "",
    prompt: promptPieces(request),
    asIds: !hasTexts(request),
    numPrompt: request.num_prompt_tokens ?? 0,
    hit: request.hit_tokens ?? 0,
    ...computed(id),
    known: request.num_tokens ?? 0,
    placeholders: request.num_output_placeholders ?? 0,
    toDrop: request.async_tokens_to_discard ?? 0,
    maxTokens: request.max_tokens ?? 0,
    preemptions: request.num_preemptions ?? 0,
    output: outputPieces(request),
    now: current ? { from: share.from, to: share.from + share.tokens } : null,
    ...speculationOf(store, id, step, request),
    newOutput: row.tokens.filter((token) => token.step === step && token.i <= store.cursor).length,
    timing: timingOf(store, id),
  };
}

/**
 * Drafts behind the output, which of the output was one in this step, and how many were right.
 * @param {Store} store @param {string} id @param {number} step @param {any} request
 */
function speculationOf(store, id, step, request) {
  const { verified } = latestDrafts(store, id);
  const now = verified?.step === step ? verified.facts : null;
  const first = now ? now.position - (request.num_prompt_tokens ?? 0) : 0;
  return {
    drafts: draftsBehind(store, id, step),
    accepted: { from: first, to: first + (now?.num_accepted ?? 0) }, // places in the output
    tally: tallyOf(store, id),
  };
}

/** The sentence that the panel opens with. @param {Store} store */
export function sentence(store) {
  return sentenceOf(store, lifecycleParts);
}

/** @typedef {ReturnType<typeof model>} Model */
/** @typedef {ReturnType<typeof streamOf>} Stream */
