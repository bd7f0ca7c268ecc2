// @ts-check
/**
 * What the engine did, in words: a phrase for each event and each reason, a sentence for a step.
 *
 * Everything here is made from events alone. A sentence is a list of parts, and each part names
 * the events it was made of, so that a changed event changes its own part and no other.
 */

import { blockList, bytes, count, list, micros, plural, quote } from "./format.js";

/**
 * @typedef {Object} EngineEvent
 * @property {"event"} kind
 * @property {number} seq
 * @property {number} step
 * @property {string} phase
 * @property {string} type
 * @property {string} component
 * @property {string | null} connection
 * @property {Record<string, any>} facts
 * @property {Reason} [reason]
 * @property {number} [duration_us]
 * @property {number} t_us
 */
/** @typedef {{code: string} & Record<string, any>} Reason */
/** @typedef {"measured" | "derived" | "illustrative"} TruthKind */
/** @typedef {{text: string, seqs: number[], truth?: TruthKind}} Part */
/**
 * What a sentence may know beside its events.
 * @typedef {Object} Context
 * @property {number} [step] named where a step has no event yet
 * @property {(id: string) => number | undefined} [promptTokens]
 * @property {string} [device] that the times were measured on
 */

// --- reasons ------------------------------------------------------------------------------------

/** @type {Record<string, (r: any) => string>} */
export const REASON_PHRASES = {
  seats_full: (r) => `${r.running} of ${r.max_num_seqs} seats are taken`,
  budget_spent: (r) => `the step's ${plural(r.max_num_batched_tokens, "token")} are spent`,
  does_not_fit: (r) =>
    r.watermark > 0
      ? `it needs ${plural(r.needs, "block")} beside ${r.watermark} that must stay free, and ` +
        `${r.free} ${are(r.free)} free`
      : `it needs ${plural(r.needs, "block")} and ${r.free} ${are(r.free)} free`,
  preempted_this_step: (r) =>
    `nobody is admitted in a step that preempted ${plural(r.preempted, "request")}`,
  chunking_off: (r) =>
    `chunked prefill is off: its ${plural(r.wants, "token")} must go at once, and the budget has ` +
    `${r.budget_left} left`,
  model_length_reached: (r) =>
    `the longest length, ${plural(r.max_model_len, "token")}, is reached`,
  whole_request: (r) =>
    `${plural(r.wanted, "token")} ${r.wanted === 1 ? "is" : "are"} all it wanted`,
  budget_left: (r) => `it wanted ${r.wanted}, the budget had ${r.budget_left} left`,
  long_prefill_threshold: (r) =>
    `it wanted ${r.wanted}, one request gets at most ${r.long_prefill_token_threshold} a step`,
  first_miss: (r) => `its logical block ${r.block} is not cached`,
  last_token_needed: (r) =>
    `at least one token must be computed, so at most ${plural(r.limit, "token")} may hit`,
  free_queue_head: (r) => `first of the ${plural(r.free, "block")} in the free queue`,
  block_filled: (r) => `full, ${plural(r.num_tokens, "token")} known and scheduled`,
  last_running: (r) => `the last of ${r.running} running`,
  lowest_priority: (r) => `the last in order of priority, with ${r.priority}`,
  max_tokens_reached: (r) =>
    `it has ${r.max_tokens === 1 ? "the" : "all"} ${plural(r.max_tokens, "token")} it asked for`,
  eos_token: (r) => `the model ended the text (token ${r.token})`,
  stop_token: (r) => `token ${r.token} is one of its stop tokens`,
  stop_string: (r) => `its stop string (stop[${r.stop_index}]) appeared`,
  client_aborted: () => "the client took it back",
  uncomputed_dependency: (r) =>
    `it shares block ${r.block}, which an aborted request would have computed in this step`,
  reset_requested: () => "the prefix cache is to be reset, so nobody may hold blocks",
  prompt_too_long: (r) =>
    `${plural(r.num_prompt_tokens, "prompt token")} leave no room for one more within ` +
    `${r.max_model_len}`,
  can_never_fit: (r) =>
    `it may need ${plural(r.needs, "block")} and the whole pool has ${r.blocks} to give`,
  prefill_in_batch: (r) =>
    `${plural(r.prefill_tokens, "prefill token")} ${are(r.prefill_tokens)} in the batch, and only ` +
    "pure decode batches are captured",
  above_largest_size: (r) =>
    `${plural(r.batch, "token")} are more than the largest captured size, ${r.largest}`,
  enforce_eager: () => "the engine was told never to use a graph",
  nothing_captured: (r) =>
    `no graph is captured in this engine for a batch of ${plural(r.batch, "token")}`,
  blocks_in_use: (r) => `${plural(r.used, "block")} ${are(r.used)} in use`,
};

/** @param {number} n */
function are(n) {
  return n === 1 ? "is" : "are";
}

/**
 * Why a decision fell as it did, with its numbers, as a clause.
 * @param {Reason | null | undefined} reason
 * @returns {string}
 */
export function reasonPhrase(reason) {
  if (!reason) return "";
  const phrase = REASON_PHRASES[reason.code];
  return phrase ? phrase(reason) : unknown(reason.code, reason);
}

/** A name this page does not know yet, with its numbers. @param {string} name @param {any} facts */
function unknown(name, facts) {
  const numbers = Object.entries(facts)
    .filter(([key, value]) => key !== "code" && typeof value !== "object")
    .map(([key, value]) => `${key} ${value}`);
  return [name.replaceAll("_", " "), numbers.join(", ")].filter(Boolean).join(": ");
}

/** ` (reason)`, or nothing. @param {Reason | null | undefined} reason */
function because(reason) {
  return reason ? ` (${reasonPhrase(reason)})` : "";
}

/** `: reason`, or nothing. @param {Reason | null | undefined} reason */
function colon(reason) {
  return reason ? `: ${reasonPhrase(reason)}` : "";
}

// --- events -------------------------------------------------------------------------------------

/** @type {Record<string, string>} */
const SOURCES = { page: " from the page", http: " over HTTP" };

/** @type {Record<string, (f: any, e: EngineEvent) => string>} */
export const EVENT_PHRASES = {
  request_submitted: (f) =>
    `${f.request} is submitted${SOURCES[f.source] ?? ""}: ${plural(f.num_prompt_tokens, "prompt token")}, ` +
    `at most ${f.max_tokens} to generate`,
  request_refused: (f, e) =>
    `${f.request} is refused with ${plural(f.num_prompt_tokens, "prompt token")}${colon(e.reason)}`,
  request_arrived: (f) =>
    `${f.request} joins the waiting queue with ${plural(f.num_prompt_tokens, "prompt token")}, ` +
    `${f.waiting} in it now`,
  request_aborted: (f, e) => `${f.request} is aborted while ${f.status}${because(e.reason)}`,
  prefix_cache_reset: (f, e) =>
    f.done
      ? `the prefix cache is reset: ${plural(f.dropped, "hash")} dropped`
      : `the prefix cache is not reset, ${f.dropped} dropped${colon(e.reason)}`,
  prefix_looked_up: (f, e) =>
    f.hit_tokens > 0
      ? `${f.hit_tokens} of ${f.request}'s ${plural(f.num_tokens, "token")} are${f.preempted ? " still" : ""} cached, in ` +
        `${blockList(f.hit_blocks)}${because(e.reason)}`
      : `${f.hit_tokens} of ${f.request}'s ${plural(f.num_tokens, "token")} are cached${because(e.reason)}`,
  blocks_hit: (f) =>
    `${f.request} shares cached ${blockList(f.blocks)} (${f.taken_from_free} taken out of the free queue)`,
  block_evicted: (f) => `block ${f.block} loses its cached content ${f.hash.slice(0, 8)}`,
  blocks_allocated: (f, e) => `${f.request} gets ${blockList(f.blocks)}${because(e.reason)}`,
  allocation_failed: (f, e) => `no blocks for ${f.request}${colon(e.reason)}`,
  blocks_cached: (f, e) =>
    `${f.request}'s ${blockList(f.blocks)}, logical from ${f.first_index}, ` +
    `${f.blocks.length === 1 ? "enters" : "enter"} the prefix cache${because(e.reason)}`,
  blocks_uncached: (f, e) =>
    `${f.request}'s ${blockList(f.blocks)} ${f.blocks.length === 1 ? "leaves" : "leave"} the prefix ` +
    `cache, never computed${because(e.reason)}`,
  blocks_freed: (f) =>
    `${f.request} lets go of ${blockList(f.blocks)}; ${
      f.returned.length === f.blocks.length ? "all" : count(f.returned.length)
    } free now`,
  request_scheduled: (f, e) =>
    `${f.request} (${f.kind}) gets ${plural(f.num_tokens, "token")} from position ` +
    `${f.num_computed_tokens} of ${f.num_known_tokens}, ${f.budget_left} of the budget left` +
    because(e.reason),
  request_passed_over: (f, e) => passedOverWords(f, e.reason),
  request_preempted: (f, e) =>
    `${f.request} is preempted${f.by ? ` for ${f.by}` : ""}${because(e.reason)}; ` +
    `${plural(f.num_computed_tokens, "computed token")} ${f.num_computed_tokens === 1 ? "is" : "are"} lost`,
  admission_stopped: (f, e) =>
    `${f.request} is not admitted, ${f.waiting} waiting${colon(e.reason)}`,
  batch_scheduled: (f) =>
    `a batch of ${plural(f.num_requests, "request")}: ${f.prefill_tokens} prefill and ` +
    `${f.decode_tokens} decode tokens of ${f.max_num_batched_tokens}`,
  block_tables_updated: (f) =>
    `the runner takes over ${plural(f.new_blocks, "new block")} of ${list(f.requests) || "nobody"}`,
  inputs_prepared: (f) =>
    `${plural(f.input_ids.length, "row")} laid out for ${list(f.requests) || "nobody"}`,
  step_dispatched: (f, e) =>
    f.mode === "NONE"
      ? `${plural(f.num_tokens, "token")} run eagerly${colon(e.reason)}`
      : `${plural(f.num_tokens, "token")} replay the ${f.mode} graph of ${f.num_padded_tokens}${because(e.reason)}`,
  forward_run: (f, e) =>
    `${plural(f.num_tokens, "token")} of ${plural(f.num_requests, "request")} went through ` +
    `${plural(f.num_layers, "layer")}${took(e)}`,
  weights_read: (f) => `the weights were read once, ${bytes(f.num_bytes)}`,
  modules_timed: (f) =>
    `time by module: ${list(f.kinds.map((/** @type {string} */ kind, /** @type {number} */ i) => `${kind} ${micros(f.durations_us[i])}`))}`,
  attention_run: (f, e) =>
    `attention (${f.backend}) ran over ${plural(f.num_tokens, "token")} in ` +
    `${plural(f.num_layers, "layer")}${took(e)}`,
  kv_written: (f) => `K and V of ${plural(f.num_tokens, "token")} written, ${bytes(f.num_bytes)}`,
  pages_read: (f) =>
    `attention read ${blockList(f.blocks)} for ${f.request}: ${plural(f.num_tokens, "token")} of ` +
    `context, ${bytes(f.num_bytes)}`,
  heads_grouped: (f) =>
    `${plural(f.num_attention_heads, "query head")} share ${plural(f.num_kv_heads, "KV head")}, ` +
    `${bytes(f.kv_bytes_per_token)} of KV a token`,
  token_sampled: (f) =>
    `token ${f.token} ${f.greedy ? "is the likeliest" : "is drawn"} for ${f.request}`,
  tokens_returned: (f) => `${plural(f.num_tokens, "sampled token")} go back to the scheduler`,
  token_appended: (f) =>
    `${f.request} grows by token ${f.token} to ${plural(f.num_tokens, "token")}`,
  token_dropped: (f, e) => `token ${f.token} of ${f.request} came too late${colon(e.reason)}`,
  request_finished: (f, e) =>
    `${f.request} finishes (${f.finish_reason}) after ${plural(f.num_output_tokens, "token")}${colon(e.reason)}`,
  outputs_returned: (f) =>
    `the outcome of ${plural(f.num_requests, "request")} goes to the front end, ` +
    `${f.num_finished} finished`,
  text_emitted: (f) =>
    `${f.request} says ${quote(f.text)} (token ${f.token}, output ${f.output_index})`,
  request_completed: (f) => `${f.request}'s client is told: ${f.finish_reason}`,
  engine_failed: (f) => `the engine stopped: ${f.message}`,
};

/**
 * A request's own length stops only itself; a spent budget stops those behind it too.
 * @param {any} f @param {Reason | undefined} reason
 */
function passedOverWords(f, reason) {
  const alone = !f.behind || reason?.code === "model_length_reached";
  const who = alone ? `${f.request} gets` : `${f.request} and the ${f.behind} behind it get`;
  return `${who} nothing in this step${colon(reason)}`;
}

/** ` in 61.2 ms`, or nothing. @param {EngineEvent} e */
function took(e) {
  return e.duration_us === undefined ? "" : ` in ${micros(e.duration_us)}`;
}

/**
 * One short phrase for an event, its reason and numbers included.
 * @param {EngineEvent} event
 * @returns {string}
 */
export function eventPhrase(event) {
  const phrase = EVENT_PHRASES[event.type];
  const text = phrase ? phrase(event.facts, event) : unknown(event.type, event.facts);
  const why = reasonPhrase(event.reason);
  return why === "" || text.includes(why) ? text : `${text} (${why})`;
}

// --- what a request's share of a step is --------------------------------------------------------

/**
 * "decode" where the one token it lacks is the one it generated last, else "prefill".
 * @param {Record<string, any>} facts of a request_scheduled event
 * @param {number} [promptTokens]
 * @returns {"prefill" | "decode"}
 */
export function shareKind(facts, promptTokens) {
  if (facts.num_known_tokens - facts.num_computed_tokens !== 1) return "prefill";
  if (promptTokens !== undefined)
    return facts.num_known_tokens > promptTokens ? "decode" : "prefill";
  return facts.kind === "running" ? "decode" : "prefill";
}

/** "an" before 8, 11, 18, 80 to 89 and their thousands. @param {number} n */
function article(n) {
  return /^(8\d*|11|18|1[18],)/.test(count(n)) ? "an" : "a";
}

/**
 * `a 32-token prefill chunk of r2 (it wanted 60, the budget had 32 left)`.
 * @param {EngineEvent} event request_scheduled, a prefill @param {number | undefined} promptTokens
 */
function prefillWords(event, promptTokens) {
  const f = event.facts;
  const reaches = f.num_computed_tokens + f.num_tokens >= f.num_known_tokens;
  const again =
    f.kind === "resumed" || (promptTokens !== undefined && f.num_known_tokens > promptTokens);
  const cut = event.reason && event.reason.code !== "whole_request" ? because(event.reason) : "";
  const size = `${count(f.num_tokens)}-token`;
  const a = article(f.num_tokens);
  const skipped =
    f.kind !== "running" && f.num_computed_tokens > 0
      ? ` after ${count(f.num_computed_tokens)} cached`
      : "";
  if (again) return `${a} ${size} chunk of ${f.request}, computed again${skipped}${cut}`;
  if (reaches && f.num_computed_tokens === 0)
    return `the whole ${size} prompt of ${f.request}${cut}`;
  if (reaches) return `the last ${size} prefill chunk of ${f.request}${skipped}${cut}`;
  return `${a} ${size} prefill chunk of ${f.request}${skipped}${cut}`;
}

// --- sentences ----------------------------------------------------------------------------------

/**
 * The sentence that a view opens with, made of the step's events up to the cursor.
 * @param {EngineEvent[]} events
 * @param {string} view
 * @param {Context} [context]
 * @returns {string}
 */
export function stepSentence(events, view, context = {}) {
  return sentenceParts(events, view, context)
    .map((part) => part.text)
    .join("");
}

/**
 * The same in parts, each with the sequence numbers of the events it was made of.
 * @param {EngineEvent[]} events
 * @param {string} view
 * @param {Context} [context]
 * @returns {Part[]}
 */
export function sentenceParts(events, view, context = {}) {
  const own = events.filter((event) => event.kind === "event");
  const failed = own.filter((event) => event.type === "engine_failed");
  if (failed.length > 0) return oneAfterTheOther("", failed);
  const commands = own.filter((event) => event.phase === "command");
  const rest = own.filter((event) => event.phase !== "command");
  if (rest.length === 0 && commands.length > 0) {
    return oneAfterTheOther(`At step ${commands[0].step}: `, commands);
  }
  const step = rest.length > 0 ? rest[0].step : context.step;
  if (step === undefined)
    return [{ text: "Nothing has happened yet: send a request, then step.", seqs: [] }];
  const opening = `Step ${step}`;
  const parts =
    view === "block-allocation"
      ? blockParts(opening, own)
      : view === "cuda-acceleration"
        ? graphParts(opening, own, context)
        : lifecycleParts(opening, own, context);
  return parts;
}

/** @param {string} opening @param {EngineEvent[]} events @returns {Part[]} */
function oneAfterTheOther(opening, events) {
  const shown = events.slice(-4);
  /** @type {Part[]} */
  const parts = opening ? [{ text: opening, seqs: [] }] : [];
  shown.forEach((event, i) => {
    parts.push({ text: `${i ? "; " : ""}${eventPhrase(event)}`, seqs: [event.seq] });
  });
  parts.push({ text: ".", seqs: [] });
  return opening ? parts : capital(parts);
}

/** @param {Part[]} parts @returns {Part[]} */
function capital(parts) {
  const [first, ...rest] = parts;
  return [{ ...first, text: first.text.charAt(0).toUpperCase() + first.text.slice(1) }, ...rest];
}

/** @param {EngineEvent[]} events @param {string} type */
function of(events, type) {
  return events.filter((event) => event.type === type);
}

/** @param {EngineEvent[]} events @returns {number[]} */
function seqs(events) {
  return events.map((event) => event.seq);
}

/**
 * Put items into a row: `a, b and c`.
 * @param {Part[]} items @returns {Part[]}
 */
function row(items) {
  return items.map((item, i) => ({
    ...item,
    text: `${i === 0 ? "" : i === items.length - 1 ? " and " : ", "}${item.text}`,
  }));
}

/**
 * The first `most` of `events` in words, the rest counted.
 * @param {EngineEvent[]} events @param {number} most @param {(e: EngineEvent) => string} words
 * @param {string} noun for the rest @returns {Part[]}
 */
function some(events, most, words, noun) {
  const shown = events.length > most ? events.slice(0, most - 1) : events;
  const parts = shown.map((event) => ({ text: words(event), seqs: [event.seq] }));
  if (shown.length < events.length) {
    const rest = events.slice(shown.length);
    parts.push({
      text: plural(rest.length, `more ${noun}`).replace(/^1 more/, "one more"),
      seqs: seqs(rest),
    });
  }
  return parts;
}

// Requests over steps: who got tokens, who waits, who lost, who is done.

/**
 * @param {string} opening @param {EngineEvent[]} events @param {Context} context @returns {Part[]}
 */
function lifecycleParts(opening, events, context) {
  const batch = of(events, "batch_scheduled")[0];
  const shares = sharesInWords(events, context);
  const other = lifecycleClauses(events);
  /** @type {Part[]} */
  const parts = [];
  if (batch) {
    const given = batch.facts.prefill_tokens + batch.facts.decode_tokens;
    const text = given
      ? `${opening} gave ${count(given)} of ${plural(batch.facts.max_num_batched_tokens, "token")}`
      : `${opening} gave no tokens: nothing can run`;
    parts.push({ text, seqs: [batch.seq] });
    if (shares.length > 0) parts.push({ text: ": ", seqs: [] }, ...row(shares));
    parts.push(...other);
  } else if (shares.length > 0) {
    parts.push({ text: `${opening} gives tokens: `, seqs: [] }, ...row(shares), ...other);
  } else {
    const arrived = arrivalsInWords(events);
    if (arrived.length > 0) parts.push({ text: `${opening}: `, seqs: [] }, ...arrived, ...other);
    else if (other.length > 0)
      parts.push({ text: `${opening}: `, seqs: [] }, ...dropSemicolon(other));
    else return [{ text: `${opening} begins; nobody has been given tokens yet.`, seqs: [] }];
  }
  parts.push({ text: ".", seqs: [] }, ...textInWords(events));
  return parts;
}

/** @param {Part[]} parts @returns {Part[]} */
function dropSemicolon(parts) {
  return parts.map((part, i) => (i === 0 ? { ...part, text: part.text.replace(/^; /, "") } : part));
}

/** @param {EngineEvent[]} events @param {Context} context @returns {Part[]} */
function sharesInWords(events, context) {
  const lost = of(events, "request_preempted").filter((event) => event.phase === "schedule");
  const takenBack = new Set(lost.map((event) => event.facts.request));
  const promptTokens = (/** @type {EngineEvent} */ event) =>
    context.promptTokens?.(event.facts.request);
  const scheduled = of(events, "request_scheduled").filter((e) => !takenBack.has(e.facts.request));
  const prefills = scheduled.filter((e) => shareKind(e.facts, promptTokens(e)) === "prefill");
  const decodes = scheduled.filter((e) => shareKind(e.facts, promptTokens(e)) === "decode");
  const parts = some(prefills, 3, (e) => prefillWords(e, promptTokens(e)), "prefill chunk");
  if (decodes.length === 1) {
    parts.push({ text: `a decode of ${decodes[0].facts.request}`, seqs: seqs(decodes) });
  } else if (decodes.length > 1) {
    const ids = decodes.map((event) => event.facts.request);
    const text =
      decodes.length > 4
        ? `${decodes.length} decodes (${list(ids, 4)})`
        : `decodes of ${list(ids)}`;
    parts.push({ text, seqs: seqs(decodes) });
  }
  return parts;
}

/**
 * `r3 (33 prompt tokens) and r4 (8) join the waiting queue`.
 * @param {EngineEvent[]} events @returns {Part[]}
 */
function arrivalsInWords(events) {
  const arrived = of(events, "request_arrived");
  if (arrived.length === 0) return [];
  const who = some(
    arrived,
    4,
    (e) => `${e.facts.request} (${plural(e.facts.num_prompt_tokens, "prompt token")})`,
    "request",
  );
  return [
    ...row(who),
    { text: `${arrived.length === 1 ? " joins" : " join"} the waiting queue`, seqs: [] },
  ];
}

/**
 * What happened beside the shares, `; ` before each clause.
 * @param {EngineEvent[]} events @returns {Part[]}
 */
function lifecycleClauses(events) {
  const had = new Set(of(events, "request_scheduled").map((event) => event.facts.request));
  const aborted = of(events, "request_aborted");
  const taken = new Set(aborted.map((event) => event.facts.request));
  const finished = of(events, "request_finished");
  /** @type {Part[]} */
  const parts = [
    ...some(of(events, "request_preempted"), 3, (e) => preemptedWords(e, had), "preemption"),
    ...some(
      of(events, "request_passed_over"),
      2,
      (e) => passedOverWords(e.facts, e.reason),
      "request passed over",
    ),
    ...some(of(events, "admission_stopped"), 2, waitsWords, "stop"),
    ...some(
      finished.filter((e) => !taken.has(e.facts.request)),
      3,
      (e) => `${e.facts.request} finishes${colon(e.reason)}`,
      "finished request",
    ),
    ...some(of(events, "token_dropped"), 2, eventPhrase, "dropped token"),
  ];
  const all = parts.map((part) => ({ ...part, text: `; ${part.text}` }));
  for (const event of aborted) {
    const f = event.facts;
    all.push({
      text: `; ${f.request} is aborted while ${f.status}${because(event.reason)}`,
      seqs: [event.seq],
    });
    const end = finished.find((item) => item.facts.request === f.request);
    if (end)
      all.push({ text: ` after ${plural(end.facts.num_output_tokens, "token")}`, seqs: [end.seq] });
  }
  return all;
}

/** @param {EngineEvent} event @param {Set<string>} had tokens in this step */
function preemptedWords(event, had) {
  const f = event.facts;
  const lost = had.has(f.request)
    ? "its tokens of this step are taken back"
    : `${plural(f.num_computed_tokens, "computed token")} must be done again`;
  return `${f.request} is preempted${f.by ? (f.by === f.request ? " by its own need" : ` for ${f.by}`) : ""}${because(event.reason)}, ${lost}`;
}

/** @param {EngineEvent} event admission_stopped */
function waitsWords(event) {
  const behind = event.facts.waiting - 1;
  return `${event.facts.request} waits${colon(event.reason)}${behind > 0 ? ` (${behind} more behind it)` : ""}`;
}

/** @param {EngineEvent[]} events @returns {Part[]} */
function textInWords(events) {
  const said = of(events, "text_emitted").filter((event) => event.facts.text !== "");
  if (said.length === 0) return [];
  const parts = some(said, 4, (e) => `${e.facts.request} ${quote(e.facts.text, 18)}`, "text");
  return [{ text: " Out went ", seqs: [] }, ...row(parts), { text: ".", seqs: [] }];
}

// Blocks: taken, hit, evicted, cached, freed.

/** @param {string} opening @param {EngineEvent[]} events @returns {Part[]} */
function blockParts(opening, events) {
  const groups = [
    some(of(events, "prefix_cache_reset"), 2, eventPhrase, "reset"),
    verb(
      "took ",
      of(events, "blocks_allocated"),
      4,
      (e) => `${blockList(e.facts.blocks)} for ${e.facts.request}`,
    ),
    hitsInWords(events),
    evictedInWords(events),
    verb(
      "cached ",
      of(events, "blocks_cached"),
      4,
      (e) => `${blockList(e.facts.blocks)} of ${e.facts.request}`,
    ),
    verb(
      "dropped the hash of ",
      of(events, "blocks_uncached"),
      2,
      (e) => `${blockList(e.facts.blocks)}${because(e.reason)}`,
    ),
    verb("freed ", of(events, "blocks_freed"), 4, freedWords),
    verb(
      "found no cached prefix for ",
      of(events, "prefix_looked_up").filter((e) => e.facts.hit_tokens === 0),
      3,
      (e) => `${e.facts.request}${e.reason?.code === "first_miss" ? "" : because(e.reason)}`,
    ),
    verb(
      "found no room for ",
      of(events, "allocation_failed"),
      3,
      (e) => `${e.facts.request}${colon(e.reason)}`,
    ),
  ].filter((group) => group.length > 0);
  if (groups.length > 0) {
    const parts = groups.flatMap((group, i) =>
      i === 0 ? group : [{ text: "; ", seqs: [] }, ...group],
    );
    return [{ text: `${opening} `, seqs: [] }, ...parts, { text: ".", seqs: [] }];
  }
  const batch = of(events, "batch_scheduled")[0];
  if (!batch) return [{ text: `${opening} has moved no block so far.`, seqs: [] }];
  const tokens = batch.facts.prefill_tokens + batch.facts.decode_tokens;
  const text = tokens
    ? `${opening} moved no block: ${tokens === 1 ? "its token fits" : `its ${count(tokens)} tokens fit`} into blocks already held.`
    : `${opening} moved no block: it had no tokens to give.`;
  return [{ text, seqs: [batch.seq] }];
}

/**
 * A verb and what it was done to, event by event.
 * @param {string} verb @param {EngineEvent[]} events @param {number} most @param {(e: EngineEvent) => string} words
 * @returns {Part[]}
 */
function verb(verb, events, most, words) {
  if (events.length === 0) return [];
  return [{ text: verb, seqs: [] }, ...row(some(events, most, words, "time"))];
}

/**
 * What was given from the cache, and how much of the request it is.
 * @param {EngineEvent[]} events @returns {Part[]}
 */
function hitsInWords(events) {
  const found = of(events, "prefix_looked_up").filter((event) => event.facts.hit_tokens > 0);
  const given = of(events, "blocks_hit");
  /** @type {Part[]} */
  const parts = [];
  for (const event of given.slice(0, 3)) {
    parts.push({
      text: `${parts.length ? ", " : ""}hit cached ${blockList(event.facts.blocks)} for ${event.facts.request}`,
      seqs: [event.seq],
    });
    const look = found.find((item) => item.facts.request === event.facts.request);
    if (look)
      parts.push({
        text: ` (${look.facts.hit_tokens} of its ${plural(look.facts.num_tokens, "token")}${look.facts.preempted ? ", kept since it was preempted" : ""})`,
        seqs: [look.seq],
      });
  }
  const more = given.slice(3);
  if (more.length > 0)
    parts.push({ text: ` and ${plural(more.length, "more hit")}`, seqs: seqs(more) });
  for (const look of found) {
    if (given.some((event) => event.facts.request === look.facts.request)) continue;
    parts.push({
      text: `${parts.length ? ", " : ""}found ${look.facts.hit_tokens} of ${look.facts.request}'s ${plural(look.facts.num_tokens, "token")} cached`,
      seqs: [look.seq],
    });
  }
  return parts;
}

/** @param {EngineEvent[]} events @returns {Part[]} */
function evictedInWords(events) {
  const evicted = of(events, "block_evicted");
  if (evicted.length === 0) return [];
  const ids = evicted.map((event) => event.facts.block);
  const which = ids.length > 5 ? plural(ids.length, "block") : blockList(ids);
  return [{ text: `evicted the cached content of ${which}`, seqs: seqs(evicted) }];
}

/** @param {EngineEvent} event blocks_freed */
function freedWords(event) {
  const { request, blocks, returned } = event.facts;
  const kept = blocks.length - returned.length;
  return `${blockList(blocks)} of ${request}${kept > 0 ? ` (${kept} still shared)` : ""}`;
}

// Graph and kernels: how the batch ran, and where its time went.

/**
 * @param {string} opening @param {EngineEvent[]} events @param {Context} context @returns {Part[]}
 */
function graphParts(opening, events, context) {
  const dispatch = of(events, "step_dispatched")[0];
  if (!dispatch) return notDispatched(opening, events);
  const f = dispatch.facts;
  const padding = f.num_padded_tokens - f.num_tokens;
  const how =
    f.mode === "NONE"
      ? `${opening} ran eagerly${colon(dispatch.reason)}`
      : `${opening} replayed the ${f.mode} graph of ${plural(f.num_padded_tokens, "token")}` +
        `${padding > 0 ? `, ${padding} of them padding` : ""}${because(dispatch.reason)}`;
  /** @type {Part[]} */
  const parts = [{ text: how, seqs: [dispatch.seq] }];
  parts.push(...timesInWords(events, context), { text: ".", seqs: [] }, ...pagesInWords(events));
  return parts;
}

/** @param {string} opening @param {EngineEvent[]} events @returns {Part[]} */
function notDispatched(opening, events) {
  const batch = of(events, "batch_scheduled")[0];
  const over = events.some((event) => ["sample", "update", "output"].includes(event.phase));
  if (batch && !over && batch.facts.num_requests > 0) {
    const tokens = batch.facts.prefill_tokens + batch.facts.decode_tokens;
    return [
      {
        text: `${opening} has a batch of ${plural(tokens, "token")}, not dispatched yet.`,
        seqs: [batch.seq],
      },
    ];
  }
  if (batch) return [{ text: `${opening} ran no forward of a model.`, seqs: [batch.seq] }];
  return [{ text: `${opening} has no batch yet.`, seqs: [] }];
}

/** @param {EngineEvent[]} events @param {Context} context @returns {Part[]} */
function timesInWords(events, context) {
  /** @type {Part[]} */
  const parts = [];
  const forward = of(events, "forward_run")[0];
  const device =
    context.device === undefined || context.device === "cpu" ? "the CPU" : context.device;
  if (forward) {
    const where = forward.duration_us === undefined ? "" : ` (measured on ${device})`;
    parts.push({
      text: `; ${eventPhrase(forward)}${where}`,
      seqs: [forward.seq],
      truth: "measured",
    });
  }
  const modules = of(events, "modules_timed")[0];
  if (modules) {
    const { kinds, durations_us } = modules.facts;
    const largest = kinds
      .map((/** @type {string} */ kind, /** @type {number} */ i) => ({ kind, us: durations_us[i] }))
      .sort((/** @type {any} */ a, /** @type {any} */ b) => b.us - a.us)
      .slice(0, 3);
    const words = largest.map((/** @type {any} */ item) => `${item.kind} ${micros(item.us)}`);
    parts.push({ text: `: ${words.join(", ")}`, seqs: [modules.seq], truth: "measured" });
  }
  return parts;
}

/** @param {EngineEvent[]} events @returns {Part[]} */
function pagesInWords(events) {
  const read = of(events, "pages_read");
  if (read.length === 0) return [];
  const pages = read.reduce((sum, event) => sum + event.facts.blocks.length, 0);
  const total = read.reduce((sum, event) => sum + event.facts.num_bytes, 0);
  const who = read.length === 1 ? read[0].facts.request : plural(read.length, "request");
  return [
    {
      text: ` Attention read ${plural(pages, "page")} for ${who}, ${bytes(total)} (derived).`,
      seqs: seqs(read),
      truth: "derived",
    },
  ];
}
