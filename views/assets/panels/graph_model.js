// @ts-check
/**
 * What the panel of graphs and kernels shows, gathered from the step's events.
 *
 * Times are the engine's own clock. What attention read is derived from the block table, as its
 * event says.
 */
import { once } from "../core/once.js";
import { STEP_PHASES } from "../core/records.js";
import { atOrBefore } from "../core/sorted.js";
import { verifiedDrafts } from "../core/speculation.js";
import { traceIndex } from "../core/trace_index.js";
import { orNobodyAsked } from "../words/empty.js";
import { GRAPH, graphParts } from "../words/graph.js";
import { reasonPhrase } from "../words/reasons.js";
import { atCursor, sentenceOf, shownRequest } from "./cursor.js";

/** @import { EventRecord } from "../core/records.js" */
/** @import { Verdict } from "../core/speculation.js" */
/** @import { Store } from "../core/store.js" */
/** @import { TraceIndex } from "../core/trace_index.js" */

/**
 * What is not drawn in every frame is made when it is asked for.
 * @param {Store} store
 */
export function model(store) {
  const index = traceIndex(store);
  const { events, step, share, command } = atCursor(store, "executor");
  const one = (/** @type {string} */ type) =>
    events.findLast((/** @type {EventRecord} */ event) => event.type === type);
  const config = store.header?.config ?? {};
  const parts = once(() => sentence(store));
  const graphs = once(() => graphsOf(store, index, one("step_dispatched")));
  const history = once(() => historyOf(index, store.cursor));
  return {
    get sentence() {
      return parts();
    },
    step,
    share,
    command,
    dispatch: dispatchOf(one("step_dispatched"), one("batch_scheduled")),
    /** The step is over and gave nobody a token. */
    nothingRan: one("batch_scheduled")?.facts.num_requests === 0,
    /** What is said where nothing has been dispatched so far. */
    none: orNobodyAsked(store, store.state, GRAPH.notDispatched),
    replay: replayOf(one("graph_replayed")),
    captured: capturedOf(one("graph_captured")),
    get graphs() {
      return graphs();
    },
    dispatcher: sizesOf(store, one("step_dispatched")),
    enforceEager: config.enforce_eager === true,
    forward: forwardOf(one("forward_run")),
    modules: modulesOf(one("modules_timed")),
    phases: phasesOf(index, step, store.cursor),
    batch: batchOf(index, one("inputs_prepared"), events, config.block_size ?? 16),
    pages: pagesOf(store, events, config),
    heads: headsOf(one("heads_grouped"), store.header?.model ?? {}),
    get history() {
      return history();
    },
    device: store.header?.model?.device ?? "",
  };
}

/** The sentence that the panel opens with. @param {Store} store */
export function sentence(store) {
  return sentenceOf(store, graphParts, "executor");
}

/** @typedef {ReturnType<typeof model>} Model */
/**
 * @typedef {{id: string, first: number, end: number, seqLen: number, drafts: DraftRow[],
 *   sampled: SampledRow[]}} BatchRequest its rows, `first` to before `end`; drafts are the last
 * @typedef {{row: number, text: string, verdict: Verdict}} DraftRow
 * @typedef {{row: number, text: string}} SampledRow
 * @typedef {{kind: string, calls: number, us: number}} ModuleTime
 * @typedef {{name: string, result: string}} Operation and the dtype and shape of what it gives
 * @typedef {{name: string, holds: string, address: string}} GraphBuffer
 * @typedef {{size: number, requests: number | null, captured: boolean}} SizeKey
 * @typedef {{mode: string, decodeOnly: boolean, keys: SizeKey[]}} SizesOfMode
 * @typedef {{mode: string, queryLen: number, largest: number, modes: SizesOfMode[],
 *   fell: {mode: string, tokens: number, padded: number} | null}} SizesView the dispatcher's table,
 *   and where the step's batch fell
 * @typedef {{first: number, last: number, rows: {kind: string, operations: Operation[]}[]}}
 *   OperationBlock operations of each of the layers `first` to `last`; -1 outside of them
 * @typedef {{key: string, mode: string, size: number, backend: string, pieces: number,
 *   taken: boolean, recorded: number, replayed: number, folded: number,
 *   views: number, bytes: number, eagerUs: number, replayUs: number,
 *   maxDifference: number, blocks: OperationBlock[], buffers: GraphBuffer[], runs: number,
 *   medianUs: number}} CapturedSize
 * @typedef {{request: string, blocks: number[], num_tokens: number, num_bytes: number,
 *   seq: number}} PagesRead
 */

/** @param {EventRecord | undefined} event @param {EventRecord | undefined} batch */
export function dispatchOf(event, batch) {
  if (!event) return null;
  const { mode, num_tokens, num_padded_tokens } = event.facts;
  return {
    mode,
    eager: mode === "NONE",
    tokens: num_tokens,
    padding: num_padded_tokens - num_tokens,
    code: event.reason?.code ?? "",
    why: reasonPhrase(event.reason),
    prefill: batch?.facts.prefill_tokens ?? 0,
    decode: batch?.facts.decode_tokens ?? 0,
    requests: batch?.facts.num_requests ?? 0,
  };
}

/** @param {EventRecord | undefined} event */
function replayOf(event) {
  if (!event) return null;
  const { mode, operations, pieces } = event.facts;
  return { mode, operations, pieces, us: event.duration_us };
}

/** What this step captured, or used for the first time. @param {EventRecord | undefined} event */
function capturedOf(event) {
  if (!event) return null;
  const { mode, size, shared } = event.facts;
  return { mode, size, shared, us: event.duration_us };
}

/**
 * The graphs that this engine has, and the one whose operations are listed.
 * @param {Store} store @param {TraceIndex} index @param {EventRecord | undefined} dispatch
 */
function graphsOf(store, index, dispatch) {
  const taken =
    dispatch && dispatch.facts.mode !== "NONE"
      ? `${dispatch.facts.mode} ${dispatch.facts.num_padded_tokens}`
      : null;
  /** @type {CapturedSize[]} */
  const sizes = Object.values(store.state?.graphs ?? {})
    .map((record) => ({
      key: `${record.mode} ${record.size}`,
      mode: record.mode,
      size: record.size,
      backend: record.backend,
      pieces: record.pieces,
      taken: `${record.mode} ${record.size}` === taken,
      recorded: record.recorded,
      replayed: record.replayed,
      folded: record.folded,
      views: record.views,
      bytes: record.num_bytes,
      eagerUs: record.eager_us,
      replayUs: record.replay_us,
      maxDifference: record.max_difference,
      blocks: operationBlocks(record),
      buffers: record.buffer_names.map((/** @type {string} */ name, /** @type {number} */ i) => ({
        name,
        holds: record.buffer_holds[i],
        address: record.buffer_addresses[i],
      })),
      ...replaysSoFar(index, `${record.mode} ${record.size}`, store.cursor),
    }))
    .sort((a, b) => a.mode.localeCompare(b.mode) || a.size - b.size);
  const shown = sizes.find((item) => item.taken) ?? sizes[sizes.length - 1] ?? null;
  return { sizes, shown };
}

/**
 * @param {Store} store @param {EventRecord | undefined} dispatch @returns {SizesView}
 */
export function sizesOf(store, dispatch) {
  const table = store.state?.dispatcher ?? { mode: "NONE", sizes: [], keys: {} };
  const graphs = store.state?.graphs ?? {};
  const modes = Object.entries(table.keys).flatMap(([mode, keys]) =>
    keys.length === 0
      ? []
      : [
          {
            mode,
            decodeOnly: keys[0][2],
            keys: keys.map((/** @type {any} */ [size, requests]) => ({
              size,
              requests,
              captured: `${mode} ${size}` in graphs,
            })),
          },
        ],
  );
  const f = dispatch?.facts;
  return {
    mode: table.mode,
    queryLen: table.uniform_decode_query_len ?? 1,
    largest: Math.max(0, ...table.sizes),
    modes,
    fell: f ? { mode: f.mode, tokens: f.num_tokens, padded: f.num_padded_tokens } : null,
  };
}

/** @param {any} record @returns {OperationBlock[]} */
function operationBlocks(record) {
  /** @type {OperationBlock[]} */
  const blocks = [];
  record.kinds.forEach((/** @type {string} */ kind, /** @type {number} */ i) => {
    const [first, last] = [record.first_layers[i], record.last_layers[i]];
    const results = record.results[i].split(" ");
    const operations = record.operations[i]
      .split(" ")
      .map((/** @type {string} */ name, /** @type {number} */ at) => ({
        name,
        result: results[at] ?? "",
      }));
    const row = { kind, operations };
    const block = blocks[blocks.length - 1];
    if (block && block.first === first && block.last === last) block.rows.push(row);
    else blocks.push({ first, last, rows: [row] });
  });
  return blocks;
}

/** @param {TraceIndex} index @param {string} key @param {number} cursor */
function replaysSoFar(index, key, cursor) {
  const all = index.replays.get(key) ?? [];
  const past = all.slice(0, atOrBefore(all.length, (k) => all[k].i, cursor) + 1);
  const times = past.map((item) => item.us).sort((a, b) => a - b);
  const middle = times.length >> 1;
  const median = times.length % 2 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
  return { runs: past.length, medianUs: past.length ? median : 0 };
}

/** @param {EventRecord | undefined} event */
function forwardOf(event) {
  if (!event) return null;
  const { num_tokens, num_layers } = event.facts;
  return { tokens: num_tokens, layers: num_layers, us: event.duration_us };
}

/** @param {EventRecord | undefined} event @returns {ModuleTime[]} */
function modulesOf(event) {
  if (!event) return [];
  const { kinds, calls, durations_us } = event.facts;
  return kinds.map((/** @type {string} */ kind, /** @type {number} */ i) => ({
    kind,
    calls: calls[i],
    us: durations_us[i],
  }));
}

/**
 * @param {TraceIndex} index @param {number} step @param {number} cursor
 */
function phasesOf(index, step, cursor) {
  const phases = index.steps.get(step)?.phases;
  return STEP_PHASES.map((phase) => {
    const item = phases?.get(phase);
    return { phase, us: item && item.i <= cursor ? item.us : null };
  });
}

/**
 * The flattened batch.
 * @param {TraceIndex} index @param {EventRecord | undefined} event @param {EventRecord[]} events
 * @param {number} blockSize
 */
export function batchOf(index, event, events, blockSize) {
  if (!event) return null;
  const f = event.facts;
  /** @type {BatchRequest[]} */
  const requests = f.requests.map((/** @type {string} */ id, /** @type {number} */ i) => {
    const end = f.query_start_loc[i + 1];
    const drafts = draftRows(index, event, events, i);
    const first = end - 1 - drafts.length; // of the rows that are sampled from
    const sampled = events
      .filter((item) => item.type === "token_sampled" && item.facts.request === id)
      .map(({ facts }, k) => ({ row: first + k, text: textOfSampled(facts) }));
    return { id, first: f.query_start_loc[i], end, seqLen: f.seq_lens[i], drafts, sampled };
  });
  return {
    requests,
    ids: f.input_ids,
    positions: f.positions,
    slots: f.slot_mapping,
    blockSize,
    us: event.duration_us,
  };
}

/** @param {any} facts of token_sampled */
function textOfSampled({ token, candidates, texts }) {
  return texts[candidates.indexOf(token)] ?? `#${token}`;
}

/**
 * A request's rows behind its known tokens, with their verdict where it has been given.
 * @param {TraceIndex} index @param {EventRecord} event inputs_prepared
 * @param {EventRecord[]} events @param {number} place of the request in the batch
 * @returns {DraftRow[]}
 */
function draftRows(index, event, events, place) {
  const { requests, query_start_loc: starts, seq_lens: lengths } = event.facts;
  const [id, seqLen, end] = [requests[place], lengths[place], starts[place + 1]];
  const row = index.rows.get(id);
  const known = row?.shares.get(event.step)?.known ?? seqLen;
  const size = Math.min(seqLen - known, end - starts[place]);
  // Where steps overlap, what is not known is a placeholder.
  if (size <= 0 || index.overlaps || !row) return [];
  const verified = events.find(
    ({ type, facts }) => type === "drafts_verified" && facts.request === id,
  );
  if (verified)
    return verifiedDrafts({ facts: verified.facts }).map(({ text, verdict }, k) => ({
      row: end - size + k,
      text,
      verdict,
    }));
  const proposed = [...row.proposed.values()].findLast((mark) => mark.step < event.step);
  const texts = proposed && proposed.facts.position === known ? proposed.facts.texts : [];
  return Array.from({ length: size }, (_, k) => ({
    row: end - size + k,
    text: texts[k] ?? "",
    verdict: "pending",
  }));
}

/**
 * What attention read, for the request shown and in sum.
 * @param {Store} store @param {EventRecord[]} events @param {any} config
 */
function pagesOf(store, events, config) {
  const read = events.filter((event) => event.type === "pages_read");
  const chosen = shownRequest(store);
  const found =
    read.find((event) => event.facts.request === chosen) ??
    (store.selection?.request ? undefined : read[read.length - 1]);
  /** @type {PagesRead | null} */
  const shown = found ? { ...found.facts, seq: found.seq } : null;
  return {
    chosen,
    shown,
    all: read.map((event) => ({
      request: event.facts.request,
      pages: event.facts.blocks.length,
      bytes: event.facts.num_bytes,
    })),
    pool: config.num_gpu_blocks ?? 1,
    blockSize: config.block_size ?? 16,
  };
}

/** @param {EventRecord | undefined} event @param {any} shape */
export function headsOf(event, shape) {
  const query = event?.facts.num_attention_heads ?? shape.num_attention_heads;
  const kv = event?.facts.num_kv_heads ?? shape.num_kv_heads;
  const perToken = event?.facts.kv_bytes_per_token ?? shape.kv_bytes_per_token;
  if (!query || !kv) return null;
  return { query, kv, group: query / kv, perToken, layers: shape.num_layers, dim: shape.head_dim };
}

/** @param {TraceIndex} index @param {number} cursor */
function historyOf(index, cursor) {
  const history = [];
  for (const facts of index.steps.values()) {
    let us = 0;
    for (const phase of facts.phases.values()) us += phase.us;
    const i = facts.dispatch ? facts.dispatch.seq : (facts.batch?.seq ?? Infinity);
    history.push({
      step: facts.step,
      mode: facts.dispatch?.facts.mode ?? null,
      tokens: facts.shares.reduce(
        (sum, share) => sum + (share.takenBack === undefined ? share.tokens : 0),
        0,
      ),
      us,
      captureUs: facts.captureUs,
      seq: i,
      future: (facts.phases.get("arrive")?.i ?? Infinity) > cursor,
    });
  }
  return history;
}
