// @ts-check
/**
 * The live line, the meter and the live rows of each engine box, from the state and the events of
 * the step at the cursor and from nothing else. What has not happened yet in this step says so.
 *
 * @typedef {{name: string, value: string, truth: TruthKind, how: string}} LiveRow
 * @typedef {{line: string, short?: string, quiet?: boolean, meter?: number, meterHow?: string,
 *   rows: LiveRow[]}} Live
 */
import { USED_HOW, poolUse } from "../core/pool.js";
import { bytes, count, micros, paceText, percent, plural } from "../words/format.js";

/** @import { TruthKind } from "../page/truth.js" */
/** @import { Moment } from "./moment.js" */

const NOT_YET = "not yet in this step";
/** The line of a box for which nothing has happened yet. */
const QUIET = { line: NOT_YET, short: "not yet", quiet: true };

/** @param {string} name @param {string|number} value @param {string} how @returns {LiveRow} */
function measured(name, value, how) {
  return { name, value: String(value), truth: "measured", how };
}

/** @param {string} name @param {string|number} value @param {string} how @returns {LiveRow} */
function derived(name, value, how) {
  return { name, value: String(value), truth: "derived", how };
}

/** @param {number|undefined} value */
const shown = (value) => (typeof value === "number" ? count(value) : "–");

/** @param {Moment} now @returns {Live} */
function client(now) {
  const { open } = now.requests;
  const counters = now.state.counters ?? {};
  const text = now.all("text_emitted");
  return {
    line:
      now.requests.finished || open
        ? `${open} open · ${now.requests.finished} done`
        : "no request yet",
    short: now.requests.finished || open ? `${open} open` : "none yet",
    quiet: !open,
    rows: [
      derived("open requests", count(open), "requests whose status is not finished, counted"),
      measured("requests finished", shown(counters.requests_finished), "the engine's counter"),
      measured("prompt tokens taken in", shown(counters.prompt_tokens), "the engine's counter"),
      measured("texts sent in this step", count(text.length), "text_emitted events of this step"),
    ],
  };
}

/** @param {Moment} now @returns {Live} */
function frontEnd(now) {
  const engine = now.state.engine ?? {};
  const { submitted, open } = now.requests;
  const mode = engine.mode ?? "paused";
  const pace = mode !== "running" ? mode : engine.rate ? paceText(engine.rate) : "running";
  return {
    line: `${pace} · ${submitted ? `${submitted} submitted` : plural(open, "request")}`,
    short: submitted ? `${submitted} submitted` : plural(open, "request"),
    rows: [
      measured("loop", pace, "the mode the front end set"),
      measured("next phase", engine.next_phase ?? "–", "where the engine stood at the cursor"),
      ...inFlightRows(engine.in_flight),
      derived(
        "requests in its care",
        count(open),
        "requests whose status is not finished, counted",
      ),
      derived(
        "submitted, not yet in the waiting queue",
        count(submitted),
        "requests whose status is submitted, counted: the next step takes them in",
      ),
      measured(
        "tokens generated",
        shown(now.state.counters?.generation_tokens),
        "the engine's counter",
      ),
    ],
  };
}

/**
 * Where steps overlap: those that are scheduled and whose output has not gone out.
 * @param {Record<string, string>|undefined} steps with the next phase of each @returns {LiveRow[]}
 */
function inFlightRows(steps) {
  const words = Object.entries(steps ?? {}).map(([step, phase]) => `${step} (${phase})`);
  return words.length
    ? [measured("steps in flight", words.join(", "), "engine.in_flight: each with its next phase")]
    : [];
}

/** @param {Moment} now @returns {Live} */
function scheduler(now) {
  const queues = now.state.queues ?? {};
  const running = queues.running?.length ?? 0;
  const waiting = queues.waiting?.length ?? 0;
  const budget = now.config.max_num_batched_tokens ?? 0;
  const spent = now
    .all("request_scheduled")
    .reduce((sum, event) => sum + event.facts.num_tokens, 0);
  const how =
    "sum of num_tokens over this step's request_scheduled events ÷ max_num_batched_tokens";
  return {
    line: `${running} running · ${waiting} waiting`,
    short: `${running} run · ${waiting} wait`,
    quiet: running + waiting === 0,
    meter: budget ? spent / budget : undefined,
    meterHow: `token budget: ${spent} of ${budget} given in this step`,
    rows: [
      measured(
        "running",
        `${running} / ${shown(now.config.max_num_seqs)}`,
        "length of the running list, and max_num_seqs",
      ),
      measured("waiting", count(waiting), "length of the waiting queue"),
      derived("token budget of this step", `${spent} / ${shown(budget)}`, how),
      measured(
        "preemptions so far",
        shown(now.state.counters?.num_preemptions),
        "the engine's counter",
      ),
    ],
  };
}

/** @param {Moment} now @returns {Live} */
function blockManager(now) {
  const { total, free, used, share } = poolUse(now.state, now.config);
  const counters = now.state.counters ?? {};
  const queries = counters.prefix_queries ?? 0;
  const hits = counters.prefix_hits ?? 0;
  return {
    line: `${free} free · ${used} used`,
    meter: total > 0 ? share : undefined,
    meterHow: `pool: ${used} of ${total} blocks in use`,
    rows: [
      measured("free blocks", count(free), "length of the free queue"),
      derived("used blocks", count(used), USED_HOW),
      derived(
        "allocated in this step",
        count(blocksIn(now, "blocks_allocated")),
        "blocks in this step's blocks_allocated events",
      ),
      derived(
        "freed in this step",
        count(blocksIn(now, "blocks_freed", "returned")),
        "returned blocks in this step's blocks_freed events",
      ),
      derived(
        "evicted in this step",
        count(now.all("block_evicted").length),
        "block_evicted events of this step, counted",
      ),
      derived(
        "prefix hit rate",
        queries ? percent(hits / queries) : "–",
        `prefix_hits ÷ prefix_queries = ${hits} ÷ ${queries} tokens`,
      ),
    ],
  };
}

/** @param {Moment} now @param {string} type @param {string} [field] */
function blocksIn(now, type, field = "blocks") {
  return now.all(type).reduce((sum, event) => sum + event.facts[field].length, 0);
}

/** @param {Moment} now @returns {Live} */
function runner(now) {
  const batch = now.last("batch_scheduled");
  const forward = now.all("forward_run").at(-1);
  const device = String(now.model.device ?? "");
  const total = batch ? batch.prefill_tokens + batch.decode_tokens : 0;
  /** @type {LiveRow[]} */
  const rows = [
    measured("tokens in the batch", batch ? count(total) : NOT_YET, "batch_scheduled of this step"),
    measured(
      "prefill + decode tokens",
      batch ? `${batch.prefill_tokens} + ${batch.decode_tokens}` : NOT_YET,
      "batch_scheduled of this step",
    ),
    measured(
      "requests in the batch",
      batch ? count(batch.num_requests) : NOT_YET,
      "batch_scheduled of this step",
    ),
    measured(
      "forward",
      forward?.duration_us === undefined ? NOT_YET : micros(forward.duration_us),
      `wall time of the model's forward${device ? ` on ${device}` : ""}`,
    ),
    measured(
      "tokens sampled",
      count(now.all("token_sampled").length),
      "token_sampled events of this step",
    ),
    ...draftRows(now),
  ];
  if (!batch) return { ...QUIET, rows };
  return { ...batchLine(batch, total), rows };
}

/** What became of drafts, in this step and so far. @param {Moment} now @returns {LiveRow[]} */
function draftRows(now) {
  const verified = now.all("drafts_verified").map((event) => event.facts);
  const waiting = now.all("drafts_proposed").map((event) => event.facts);
  const { num_drafts: steps = 0, num_draft_tokens: all = 0 } = now.state.counters ?? {};
  const { num_accepted_tokens: accepted = 0 } = now.state.counters ?? {};
  const sum = (/** @type {number[]} */ sizes) => sizes.reduce((a, b) => a + b, 0);
  /** @type {LiveRow[]} */
  const rows = [];
  if (verified.length) {
    const [right, of] = [
      sum(verified.map((f) => f.num_accepted)),
      sum(verified.map((f) => f.drafts.length)),
    ];
    rows.push(measured("drafts accepted in this step", `${right} of ${of}`, "drafts_verified"));
  }
  if (waiting.length) {
    const size = sum(waiting.map((f) => f.drafts.length));
    rows.push(measured("drafts for the next step", count(size), "drafts_proposed of this step"));
  }
  if (steps) {
    const formula = `num_accepted_tokens ÷ num_draft_tokens = ${accepted} ÷ ${all}`;
    rows.push(derived("acceptance rate", percent(accepted / all), formula));
    const length = `1 + num_accepted_tokens ÷ num_drafts = 1 + ${accepted} ÷ ${steps}`;
    rows.push(derived("mean acceptance length", (1 + accepted / steps).toFixed(2), length));
  }
  return rows;
}

/** @param {any} batch @param {number} total */
function batchLine(batch, total) {
  if (!total) return { line: "empty batch", quiet: true };
  if (!batch.decode_tokens) return { line: `${total} tok, all prefill`, short: `${total} prefill` };
  if (!batch.prefill_tokens) return { line: `${total} tok, all decode`, short: `${total} decode` };
  return {
    line: `${batch.prefill_tokens} prefill + ${batch.decode_tokens} decode`,
    short: `${batch.prefill_tokens} pre + ${batch.decode_tokens} dec`,
  };
}

/**
 * In a few words for the map; the inspector has the whole sentence.
 * @type {Record<string, string>}
 */
const EAGER_BECAUSE = {
  not_uniform_decode: "no decode batch",
  above_largest_decode_size: "above largest",
  mode_for_any_batch: "as configured",
  above_largest_size: "above largest",
  enforce_eager: "as configured",
  cannot_capture: "cannot capture",
};

/** @param {Moment} now @returns {Live} */
function graphs(now) {
  const event = now.all("step_dispatched").at(-1);
  if (!event)
    return { ...QUIET, rows: [measured("this step", NOT_YET, "step_dispatched")] };
  const { mode, num_tokens: tokens, num_padded_tokens: padded } = event.facts;
  const rows = [
    measured("this step", mode === "NONE" ? "eager" : `${mode} graph`, "mode in step_dispatched"),
    measured("tokens", count(tokens), "step_dispatched"),
    measured("padded to", count(padded), "step_dispatched"),
    derived("padding", count(Math.max(0, padded - tokens)), "padded tokens - tokens"),
  ];
  if (mode === "NONE") {
    const why = EAGER_BECAUSE[event.reason?.code ?? ""];
    return { line: why ? `eager: ${why}` : "eager", short: "eager", rows };
  }
  const pad = padded - tokens;
  const replay = now.all("graph_replayed").at(-1);
  rows.push(
    measured(
      "operations replayed",
      replay ? count(replay.facts.operations) : NOT_YET,
      "graph_replayed",
    ),
  );
  return {
    line: pad > 0 ? `replay ${padded} = ${tokens} + ${pad} pad` : `replay ${padded}`,
    short: `replay ${padded}`,
    rows,
  };
}

/** @param {Moment} now @returns {Live} */
function attention(now) {
  const run = now.all("attention_run").at(-1);
  const reads = now.all("pages_read");
  const pages = blocksIn(now, "pages_read");
  const volume = reads.reduce((sum, event) => sum + event.facts.num_bytes, 0);
  const rows = [
    measured("backend", run ? run.facts.backend : NOT_YET, "attention_run of this step"),
    measured(
      "time, all layers",
      run?.duration_us === undefined ? NOT_YET : micros(run.duration_us),
      "attention_run of this step",
    ),
    derived(
      "pages read",
      run ? count(pages) : NOT_YET,
      "blocks in this step's pages_read events, counted once a request",
    ),
    derived(
      "KV bytes read",
      run ? bytes(volume) : NOT_YET,
      "sum of num_bytes over this step's pages_read events",
    ),
  ];
  if (!run && !reads.length) return { ...QUIET, rows };
  return { line: `${plural(pages, "page")} read`, rows };
}

/** @param {Moment} now @returns {Live} */
function memory(now) {
  const { total, used, share } = poolUse(now.state, now.config);
  const perToken = now.model.kv_bytes_per_token;
  const weights = now.model.weight_bytes;
  const pool = perToken
    ? perToken * (now.config.block_size ?? 0) * (now.config.num_gpu_blocks ?? 0)
    : 0;
  const written = now.all("kv_written").reduce((sum, event) => sum + event.facts.num_bytes, 0);
  return {
    line: weights
      ? `KV ${percent(share)} · ${bytes(weights)} weights`
      : `KV ${percent(share)} used`,
    short: `KV ${percent(share)} used`,
    meter: total > 0 ? share : undefined,
    meterHow: `KV pool: ${used} of ${total} blocks in use`,
    rows: [
      derived(
        "KV pool in use",
        percent(share),
        `used ÷ (num_gpu_blocks - 1) = ${used} ÷ ${total}`,
      ),
      derived(
        "KV pool",
        pool ? bytes(pool) : "–",
        "kv_bytes_per_token × block_size × num_gpu_blocks",
      ),
      measured("weights", weights ? bytes(weights) : "–", "bytes of the running model's tensors"),
      ...quantizedRows(now.model),
      derived(
        "KV written in this step",
        bytes(written),
        "sum of num_bytes over this step's kv_written events",
      ),
      measured(
        "dtype of weights, KV",
        `${now.model.dtype ?? "–"}, ${now.model.kv_cache_dtype ?? now.model.dtype ?? "–"}`,
        "of the running model's parameters, and of its KV pool",
      ),
      measured("device", now.model.device ?? "–", "where the loaded model runs"),
    ],
  };
}

/** What weights are rounded to, where they are. @param {any} model @returns {LiveRow[]} */
function quantizedRows(model) {
  if (!model.quantization) return [];
  const layers = `${count(model.quantized_layers)} of ${count(model.linear_layers)}`;
  const how = "counted in the running model: the head stays, and so do sizes that no product takes";
  return [measured(`linear layers in ${model.quantization}`, layers, how)];
}

/** @param {Moment} now @returns {Live} */
function groupedHeads(now) {
  const q = now.model.num_attention_heads;
  const kv = now.model.num_kv_heads;
  const perToken = now.model.kv_bytes_per_token;
  if (!q || !kv) {
    return {
      line: "no model in this log",
      short: "no model",
      quiet: true,
      rows: [measured("heads", "–", "the log's header names no model")],
    };
  }
  const factor = Number.isInteger(q / kv) ? String(q / kv) : (q / kv).toFixed(1);
  return {
    line: `${q} q : ${kv} kv heads`,
    rows: [
      measured("query heads", count(q), "the loaded model's configuration"),
      measured("KV heads", count(kv), "the loaded model's configuration"),
      derived("query heads a KV head", factor, `query heads ÷ KV heads = ${q} ÷ ${kv}`),
      derived(
        "KV bytes a token",
        perToken ? bytes(perToken) : "–",
        "2 × layers × KV heads × head_dim × bytes of the dtype, with the scales of int8",
      ),
      derived(
        "without grouping",
        perToken ? bytes((perToken * q) / kv) : "–",
        "KV bytes a token × query heads ÷ KV heads",
      ),
    ],
  };
}

/** @type {Record<string, (now: Moment) => Live>} by the engine's name of the box */
const BOXES = {
  "client-req": client,
  "async-engine": frontEnd,
  scheduler,
  "block-manager": blockManager,
  "gpu-runner": runner,
  "cuda-graph": graphs,
  "paged-attn": attention,
  "physical-vram": memory,
  "shared-gqa": groupedHeads,
};

/** @param {string|null} name @param {Moment} now @returns {Live|null} null: nothing live here */
export function liveOf(name, now) {
  const box = name !== null && Object.hasOwn(BOXES, name) ? BOXES[name] : null;
  return box ? box(now) : null;
}
