// @ts-check
/**
 * What the front end and its clients have of each request: what was asked, what has been sent of
 * the answer up to the cursor, and what of it this step sent.
 *
 * @typedef {Object} Stream
 * @property {string} id
 * @property {string} status
 * @property {string} source "page", "http" or "class:NAME"
 * @property {string} parent
 * @property {string} asked the prompt's beginning, or its first token ids
 * @property {number} prompt tokens
 * @property {number} output tokens known
 * @property {number} most tokens it may generate
 * @property {string} sent the end of the text that went out before this step
 * @property {string} fresh what this step sent
 * @property {boolean} told that the client was told of its end in this step
 * @property {number} held tokens whose text has not gone out
 * @property {string} finish
 */
import { atOrBefore } from "../core/sorted.js";
import { traceIndex } from "../core/trace_index.js";
import { shortened } from "../words/format.js";

/** @import { Moment } from "../boxes/moment.js" */
/** @import { Store } from "../core/store.js" */
/** @import { Emission } from "../core/trace_index.js" */

const PIECES = 48; // of the sent text, from its end
const ASKED = 160; // characters
const IDS = 16;

/**
 * The open requests in the order in which they came, behind them those that ended, latest first.
 * @param {Store} store @param {Moment} now @param {number} most
 * @returns {{open: number, ended: number, streams: Stream[]}}
 */
export function streamsOf(store, now, most) {
  const requests = now.state.requests ?? {};
  const ids = [...traceIndex(store).rows.keys()].filter((id) => requests[id]);
  const open = ids.filter((id) => requests[id].status !== "finished");
  const ended = ids.filter((id) => requests[id].status === "finished").reverse();
  const shown = [...open, ...ended].slice(0, most);
  return {
    open: open.length,
    ended: ended.length,
    streams: shown.map((id) => streamOf(store, now, id)),
  };
}

/** @param {Store} store @param {Moment} now @param {string} id @returns {Stream} */
function streamOf(store, now, id) {
  const request = now.state.requests[id];
  const { texts } = traceIndex(store).row(id);
  const last = atOrBefore(texts.length, (k) => texts[k].i, store.cursor);
  const step = now.entry?.command ? -1 : (now.entry?.step ?? -1);
  let first = last;
  while (first >= 0 && texts[first].step === step) first -= 1;
  const output = (request.num_tokens ?? 0) - (request.num_prompt_tokens ?? 0);
  const sentTokens = last < 0 ? 0 : texts[last].index + 1;
  return {
    id,
    status: request.status,
    source: request.source ?? "",
    parent: request.parent ?? "",
    asked: request.prompt
      ? shortened(request.prompt, ASKED)
      : (request.prompt_token_ids ?? []).slice(0, IDS).join(" "),
    prompt: request.num_prompt_tokens ?? 0,
    output,
    most: request.max_tokens ?? 0,
    sent: joined(texts, first - PIECES + 1, first),
    fresh: joined(texts, first + 1, last),
    told: now.all("request_completed").some((event) => event.facts.request === id),
    held: Math.max(0, output - sentTokens),
    finish: request.finish_reason ?? "",
  };
}

/** @param {Emission[]} texts @param {number} first @param {number} last */
function joined(texts, first, last) {
  let text = "";
  for (let k = Math.max(0, first); k <= last; k += 1) text += texts[k].text;
  return text;
}
