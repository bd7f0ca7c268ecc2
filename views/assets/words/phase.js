// @ts-check
/** What one phase did, in a line below the step's sentence, from that phase's events alone. */
import { eventPhrase, sampledToken } from "./events.js";
import { does, list, micros, names, plural, quote } from "./format.js";
import { of, seqs, some } from "./parts.js";

/** @import { EventRecord } from "../core/records.js" */
/** @import { Part } from "./parts.js" */

/** @typedef {(events: EventRecord[]) => Part[]} Clauses */

/**
 * Each event of a type in words, the rest counted.
 * @param {string} type @param {number} most @param {string} noun
 * @param {(e: EventRecord) => string} [words]
 * @returns {Clauses}
 */
const each =
  (type, most, noun, words = eventPhrase) =>
  (events) =>
    some(of(events, type), most, words, noun);

/** @type {Clauses} */
const arrived = (events) => {
  const all = of(events, "request_arrived");
  if (all.length <= 2) return some(all, 2, eventPhrase, "request");
  const who = names(all.map((event) => event.facts.request));
  const text = `${plural(all.length, "request")} join the waiting queue (${who})`;
  return [{ text, seqs: seqs(all) }];
};

/** @type {Clauses} */
const given = (events) => {
  const batch = of(events, "batch_scheduled");
  if (batch.length > 0) return some(batch, 1, eventPhrase, "batch");
  const all = of(events, "request_scheduled");
  if (all.length === 0) return [];
  const tokens = all.reduce((sum, event) => sum + event.facts.num_tokens, 0);
  const who = list(all.map((event) => event.facts.request));
  return [{ text: `${who} got ${plural(tokens, "token")} so far`, seqs: seqs(all) }];
};

/** @type {Clauses} */
const taken = (events) => {
  const all = of(events, "blocks_allocated");
  if (all.length === 0) return [];
  const blocks = all.reduce((sum, event) => sum + event.facts.blocks.length, 0);
  return [{ text: `${does(blocks, "block", "was", "were")} taken`, seqs: seqs(all) }];
};

/** Whose cached blocks are used again. @type {Clauses} */
const hit = (events) => {
  const words = (/** @type {EventRecord} */ { facts: f }) =>
    `${f.request} hit ${plural(f.blocks.length, "cached block")}`;
  return some(of(events, "blocks_hit"), 3, words, "hit");
};

/** @type {Clauses} */
const evicted = (events) => {
  const all = of(events, "block_evicted");
  if (all.length === 0) return [];
  return [{ text: `${does(all.length, "block", "was", "were")} evicted`, seqs: seqs(all) }];
};

/** @param {EventRecord} event request_preempted */
function preemptedWords({ facts: f }) {
  return `${f.request} was preempted${f.by && f.by !== f.request ? ` for ${f.by}` : ""}`;
}

/** @param {EventRecord} event graph_captured */
function capturedWords({ facts: f, duration_us: us }) {
  if (f.shared) return `the ${f.mode} graph of ${plural(f.size, "row")} was there already`;
  const time = us === undefined ? "" : ` in ${micros(us)} (measured)`;
  return `a ${f.mode} graph of ${plural(f.size, "row")} was captured${time}`;
}

/** @param {EventRecord} event forward_run */
function forwardWords({ facts: f, duration_us: us }) {
  const time = us === undefined ? "" : ` in ${micros(us)} (measured)`;
  return `${plural(f.num_tokens, "token")} went through ${plural(f.num_layers, "layer")}${time}`;
}

/** @param {EventRecord} event token_sampled */
function sampledWords({ facts: f }) {
  return `${f.request} got ${sampledToken(f)}${f.greedy ? "" : ", drawn"}`;
}

/** @type {Clauses} */
const appended = (events) => {
  const all = of(events, "token_appended");
  if (all.length === 0) return [];
  const who = list(all.map((event) => event.facts.request));
  const text = `${does(all.length, "token", "is", "are")} appended (${who})`;
  return [{ text, seqs: seqs(all) }];
};

/** @param {EventRecord} event request_finished */
function finishedWords({ facts: f }) {
  return `${f.request} finished (${f.finish_reason})`;
}

/** @type {Clauses} */
const told = (events) => {
  const all = of(events, "request_completed");
  if (all.length === 0) return [];
  const who = list(all.map((event) => event.facts.request));
  return [{ text: `the end of ${who} is told`, seqs: seqs(all) }];
};

/** @param {EventRecord} event text_emitted */
function streamedWords({ facts: f }) {
  return f.text === ""
    ? `nothing readable yet for ${f.request}`
    : `${quote(f.text, 18)} streamed to ${f.request}'s client`;
}

const preempted = each("request_preempted", 3, "preemption", preemptedWords);

/** @type {Record<string, {clauses: Clauses[], none: string}>} */
const PHASES = {
  arrive: { clauses: [arrived], none: "nobody new" },
  schedule: {
    clauses: [given, hit, taken, evicted, preempted],
    none: "nobody has been given tokens",
  },
  prepare: {
    clauses: [
      each(
        "inputs_prepared",
        1,
        "layout",
        ({ facts: f }) => `${plural(f.input_ids.length, "row")} flattened`,
      ),
      each("block_tables_updated", 1, "table", ({ facts: f }) =>
        f.new_blocks > 0
          ? `${plural(f.new_blocks, "new block")} of ${list(f.requests)} taken over`
          : "no new blocks to take over",
      ),
      each("step_dispatched", 1, "dispatch"),
    ],
    none: "nothing to lay out",
  },
  execute: {
    clauses: [
      each("graph_captured", 1, "graph", capturedWords),
      each("forward_run", 1, "forward", forwardWords),
    ],
    none: "no forward ran",
  },
  sample: {
    clauses: [
      each("drafts_verified", 2, "verdict"),
      each("token_sampled", 3, "token", sampledWords),
      each("drafts_proposed", 2, "proposal"),
    ],
    none: "no token was sampled",
  },
  update: {
    clauses: [
      appended,
      each("token_dropped", 2, "dropped token"),
      each("request_finished", 3, "finished request", finishedWords),
    ],
    none: "no token to append",
  },
  output: {
    clauses: [each("text_emitted", 3, "text", streamedWords), told],
    none: "nothing to tell a client",
  },
};

/** They say how much goes on to the next part: nothing, where nothing else is told. */
const RETURNED = new Set(["tokens_returned", "outputs_returned"]);

/**
 * `execute: 34 tokens went through 30 layers in 225 ms (measured).`
 * @param {string} phase @param {EventRecord[]} events of this phase, up to the cursor
 * @returns {Part[]}
 */
export function phaseParts(phase, events) {
  const how = PHASES[phase];
  if (!how) return [];
  const parts = how.clauses.flatMap((clauses) => clauses(events));
  const last = events.findLast((event) => !RETURNED.has(event.type));
  if (parts.length === 0 && last)
    parts.push({ text: eventPhrase(last), seqs: [last.seq] });
  if (parts.length === 0) parts.push({ text: how.none, seqs: [] });
  return [
    { text: `${phase}: `, seqs: [] },
    ...parts.map((part, i) => ({ ...part, text: `${i ? "; " : ""}${part.text}` })),
    { text: ".", seqs: [] },
  ];
}
