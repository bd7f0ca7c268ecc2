// @ts-check
/** Graph and kernels, in a sentence: how the batch ran, and where its time went. */
import { eventPhrase, timesByKind } from "./events.js";
import { bytes, micros, plural } from "./format.js";
import { of, seqs } from "./parts.js";
import { because, colon } from "./reasons.js";

/** @import { EventRecord } from "../core/records.js" */
/** @import { Context, Part } from "./parts.js" */

export const GRAPH = {
  batch: "The batch: one row a token, requests one after the other",
  past: "Steps: time of each, eager or replayed; pale is the capture of a graph",
  flattened: "The flattened batch",
  columns: ["Row", "Request", "Input id", "Position", "KV slot", "Sampled from it"],
  steps: "Steps and how they ran",
  stepColumns: ["Step", "Mode", "Tokens", "Time"],
  dispatch: "How it was dispatched",
  times: "Where the forward's time went",
  captured: "Which graph there is for it",
  pages: "What attention read",
  heads: "Query heads that share a KV head",
  kernel: "Kernel room: one layer's attention, page by page",
  noBatch: "No batch was laid out in this step.",
  noBatchYet: "No batch has been laid out in this step so far: its phase prepare does that.",
  notDispatched:
    "No batch has been dispatched so far in this step: its phase prepare finds a graph for it, " +
    "or none.",
  noForward: "The model did not run in this step: it gave no tokens.",
  noForwardYet:
    "The model has not run in this step so far: its phase execute does, and what took how long " +
    "stands here.",
  noPages: "Attention did not run in this step.",
  noPagesYet:
    "Attention has not run in this step so far: which blocks it reads for each request stands " +
    "here after its phase execute.",
  noTraceYet: "Attention has not run in this step so far: step past its phase execute.",
  noPast: "No step has run yet. Each gets a bar here: how long it took, and with which graph.",
  padding: [
    "fills the batch up to the size of the graph",
    "its KV goes to block 0, which is nobody's, and its result is dropped",
    "derived: num_padded_tokens − num_tokens",
  ],
};

/**
 * The batch's picture, for those who do not see it; null: there is none.
 * @param {{ids: any[], requests: any[]}|null} batch @param {number|null} step
 * @param {number} padding rows
 */
export function batchText(batch, step, padding) {
  if (!batch) return "No batch";
  const rows = plural(batch.ids.length, "row");
  const more = padding ? ` and ${plural(padding, "row")} of padding` : "";
  return `The batch of step ${step}: ${rows} of ${plural(batch.requests.length, "request")}${more}`;
}

/** @param {number} steps @param {number|null} step at the cursor */
export function stepsText(steps, step) {
  const how = "Arrow keys move through steps.";
  return `${plural(steps, "step")}, the cursor is in step ${step}. ${how}`;
}

/** @param {number} row @param {string} [what] */
export function rowText(row, what = "padding") {
  return `Row ${row} · ${what}`;
}

/** Which block's place a slot is. @param {number} slot @param {number} size tokens of a block */
export function slotText(slot, size) {
  return `KV slot ${slot} = block ${Math.floor(slot / size)} × ${size} + ${slot % size}`;
}

/**
 * @param {string} opening @param {EventRecord[]} events @param {Context} context @returns {Part[]}
 */
export function graphParts(opening, events, context) {
  const dispatch = of(events, "step_dispatched").at(-1);
  if (!dispatch) return notDispatched(opening, events, context);
  const f = dispatch.facts;
  const padding = f.num_padded_tokens - f.num_tokens;
  const begun = events.some(({ type }) => type === "graph_captured" || type === "graph_replayed");
  const took = context.ran || begun ? "took" : "is to take";
  const how =
    f.mode === "NONE"
      ? `${opening} ${context.ran ? "ran" : "is to run"} eagerly${colon(dispatch.reason)}`
      : `${opening} ${took} the ${f.mode} graph of ` +
        `${plural(f.num_padded_tokens, "row")}` +
        `${padding > 0 ? `, ${padding} of them padding` : ""}${because(dispatch.reason)}`;
  /** @type {Part[]} */
  const parts = [{ text: how, seqs: [dispatch.seq] }, ...graphInWords(events)];
  parts.push(...timesInWords(events, context), { text: ".", seqs: [] }, ...pagesInWords(events));
  return parts;
}

/**
 * @param {string} opening @param {EventRecord[]} events @param {Context} context @returns {Part[]}
 */
function notDispatched(opening, events, context) {
  const batch = of(events, "batch_scheduled")[0];
  if (batch && !context.ran && batch.facts.num_requests > 0) {
    const tokens = batch.facts.prefill_tokens + batch.facts.decode_tokens;
    return [
      {
        text: `${opening} has a batch of ${plural(tokens, "token")}, not dispatched yet.`,
        seqs: [batch.seq],
      },
    ];
  }
  if (batch?.facts.num_requests === 0)
    return [{ text: `${opening} gave no tokens, so nothing ran.`, seqs: [batch.seq] }];
  if (batch) return [{ text: `${opening} ran no forward of a model.`, seqs: [batch.seq] }];
  return [{ text: `${opening} has no batch yet.`, seqs: [] }];
}

/** @param {EventRecord[]} events @returns {Part[]} */
function graphInWords(events) {
  /** @type {Part[]} */
  const parts = [];
  const captured = of(events, "graph_captured")[0];
  if (captured) {
    const { duration_us: us, facts, seq } = captured;
    const own = us === undefined ? ", captured just then" : `, captured just then in ${micros(us)}`;
    parts.push({ text: facts.shared ? ", captured before" : own, seqs: [seq], truth: "measured" });
  }
  const replayed = of(events, "graph_replayed")[0];
  if (replayed) {
    const operations = plural(replayed.facts.operations, "operation");
    parts.push({ text: `, and replayed ${operations}`, seqs: [replayed.seq], truth: "measured" });
  }
  return parts;
}

/** @param {EventRecord[]} events @param {Context} context @returns {Part[]} */
function timesInWords(events, context) {
  /** @type {Part[]} */
  const parts = [];
  const forward = of(events, "forward_run")[0];
  const device =
    context.device === undefined || context.device === "cpu" ? "the CPU" : context.device;
  if (forward) {
    const where = forward.duration_us === undefined ? "" : ` (measured on ${device})`;
    parts.push({
      text: `. ${eventPhrase(forward)}${where}`,
      seqs: [forward.seq],
      truth: "measured",
      aside: true,
    });
  }
  const modules = of(events, "modules_timed")[0];
  if (modules) {
    const [most] = timesByKind(modules.facts).sort((a, b) => b.us - a.us);
    const text = `, the largest part of it ${most.kind}, ${micros(most.us)}`;
    parts.push({ text, seqs: [modules.seq], truth: "measured", aside: true });
  }
  return parts;
}

/** @param {EventRecord[]} events @returns {Part[]} */
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
      aside: true,
    },
  ];
}
