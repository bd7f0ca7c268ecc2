// @ts-check
/**
 * A decision in a plain sentence, with its reason and all numbers behind it.
 *
 * A history may be about one request or block, which is "it" in all sentences of it.
 */
import { draftWords, eventPhrase, fromWhom, settledWords } from "./events.js";
import { blockList, capital, count, does, list, names, plural } from "./format.js";
import { are, colon, reasonPhrase } from "./reasons.js";
import { BLOCKS_SENTENCES, ONE_BLOCK_SENTENCES, who, whose } from "./why_blocks.js";

/** @import { Group } from "../core/history.js" */
/** @import { Numbers } from "../core/origins.js" */
/** @import { EventRecord } from "../core/records.js" */
/** @import { Why } from "../core/why.js" */

/**
 * @typedef {Object} Telling what sentences may know beside the decision
 * @property {string} [request] whose history it is
 * @property {number} [block] whose history it is
 * @property {any} [config] the engine's settings
 * @property {(request: string, position: number) => string|undefined} [piece] a token's text
 */
/** @typedef {{f: any, n: Numbers, e: EventRecord, to: Telling}} Told facts, numbers, event */

/** @type {Record<string, (told: Told) => string>} */
const SENTENCES = {
  ...BLOCKS_SENTENCES,
  submitted: ({ f, to }) =>
    `${who(f, to)} is submitted${fromWhom(f.source)} with ` +
    `${plural(f.num_prompt_tokens, "prompt token")}, at most ${f.max_tokens} to generate`,
  refused: ({ f, e, to }) => `${who(f, to)} is refused${colon(e.reason)}`,
  queued: ({ f, to }) =>
    `${who(f, to)} joins the waiting queue with ${plural(f.num_prompt_tokens, "prompt token")}; ` +
    `${does(f.waiting, "request", "waits", "wait")} now`,
  kept_waiting: ({ f, n, e, to }) =>
    `${who(f, to)} is first in the queue${sinceWords(n)} and not admitted${stopWords(f, n, e)}`,
  behind: ({ f, n, e }) => {
    const others = n.ahead > 1 ? `${f.request} and ${count(n.ahead - 1)} more; ${f.request}` : "";
    const first = others ? `${others}, the first in the queue,` : `${f.request}, which`;
    return `it waits${sinceWords(n)} behind ${first} is not admitted${stopWords(f, n, e)}`;
  },
  admitted: (told) => firstShareWords(told, "is admitted"),
  resumed: (told) => `${firstShareWords(told, "is resumed")}; ${ownWords(told)}`,
  scheduled: ({ f, e, to }) => `${who(f, to)} gets ${shareWords(f, e)}`,
  decodes: ({ f, n }) =>
    `${names(n.requests)} get one token each, all they wanted; ${leftWords(f)}`,
  drafts: ({ f, to }) => {
    const drafts = draftWords(f);
    return `the last of ${whose(f, to)} tokens are guesses for the model to verify: ${drafts}`;
  },
  lost_drafts: ({ f, to }) =>
    `${who(f, to)} loses ${plural(f.num_drafts, "draft")}, and will resume without any`,
  settled: ({ f, to }) =>
    `${settledWords(f)} of ${whose(f, to)} ${plural(f.num_drafts, "draft")}${rollBackWords(f)}`,
  passed_over: ({ f, n, e, to }) =>
    `${who(f, to)} gets nothing: ${victimsOr(f, n, e)}`,
  skipped: ({ f, n, e }) =>
    `it gets nothing, as it runs behind ${f.request}, which was passed over: ` +
    victimsOr(f, n, e),
  preempted: preemptedWords,
  made_room: ({ f }) => `${f.request} is preempted for it, as it ${shortageWords(f)}`,
  aborted: ({ f, e, to }) => `${who(f, to)} is aborted while ${f.status}${colon(e.reason)}`,
  dropped: ({ f, e, to }) =>
    `token ${f.token} of ${who(f, to)} comes too late and is dropped` +
    (e.reason ? colon(e.reason) : `: ${who(f, to)} has ended`),
  finished: ({ f, e, to }) =>
    `${who(f, to)} finishes (${f.finish_reason}) after ` +
    `${plural(f.num_output_tokens, "token")}${colon(e.reason)}`,
};

/**
 * @param {Why} why @param {Telling} [to]
 * @returns {string} a whole sentence
 */
export function whySentence({ decision, event, numbers }, to = {}) {
  const sentences = to.block === undefined ? SENTENCES : ONE_BLOCK_SENTENCES;
  const words = Object.hasOwn(sentences, decision) ? sentences[decision] : null;
  const text = words ? words({ f: event.facts, n: numbers, e: event, to }) : eventPhrase(event);
  const named = numbers.requests?.[0] ?? event.facts.request;
  // A name stays as it is.
  return named && text.startsWith(named) ? `${text}.` : `${capital(text)}.`;
}

/**
 * Many decode steps in one sentence.
 * @param {Group} group
 */
export function decodeSentence({ steps, items }) {
  const blocks = (/** @type {string} */ decision) =>
    items
      .filter((item) => item.decision === decision)
      .flatMap((item) => item.event.facts.blocks)
      .reverse();
  const [taken, filled] = [blocks("allocated"), blocks("cached")];
  const parts = [`one token in each of ${plural(steps, "step")}`];
  if (taken.length > 0) parts.push(`${blockList(taken)} taken`);
  if (filled.length > 0) parts.push(`${blockList(filled)} filled and cached`);
  return `${capital(parts.join("; "))}.`;
}

// -- waiting -------------------------------------------------------------------------------------

/** @param {Numbers} n */
function sinceWords(n) {
  return n.waited > 0 ? ` (${plural(n.waited, "step")} so far)` : "";
}

/** Why nobody is admitted. @param {any} f @param {Numbers} n @param {EventRecord} e */
function stopWords(f, n, e) {
  const short = n.short > 0 ? `, ${plural(n.short, "block")} short` : "";
  return `: ${victimsOr(f, n, e)}${short}`;
}

/**
 * The reason, and who was preempted where that is it.
 * @param {any} f @param {Numbers} n @param {EventRecord} e
 */
function victimsOr(f, n, e) {
  if (!n.victims?.length) return reasonPhrase(e.reason);
  const who = n.victims.map((/** @type {string} */ id) => (id === f.request ? "it" : id));
  return `this step preempted ${list(who)}, and gives out no more`;
}

// -- shares --------------------------------------------------------------------------------------

/** @param {any} f of request_scheduled @param {EventRecord} e */
function shareWords(f, e) {
  const where = `${f.num_tokens === 1 ? "at" : "from"} position ${f.num_computed_tokens}`;
  const whole = e.reason?.code === "whole_request";
  const why = whole ? ", all it wanted" : `: ${reasonPhrase(e.reason)}`;
  return `${plural(f.num_tokens, "token")} ${where}${why}; ${leftWords(f)}`;
}

/** @param {any} f of request_scheduled */
function leftWords({ budget_left: left }) {
  if (left === 0) return "nothing of the step's budget is left";
  return `${count(left)} of the step's budget ${are(left)} left`;
}

/** @param {Told} told @param {string} verb */
function firstShareWords({ f, n, e, to }, verb) {
  const seats = to.config?.max_num_seqs;
  const seat = n.seat ? ` to seat ${n.seat}${seats ? ` of ${seats}` : ""}` : "";
  const waited = n.waited > 0 ? ` after ${plural(n.waited, "step")} of waiting` : "";
  return `${who(f, to)} ${verb}${seat}${waited} and gets ${shareWords(f, e)}`;
}

/** What a resumed request still has of what it had. @param {Told} told */
function ownWords({ f, n }) {
  const hit = f.num_computed_tokens;
  const before = `of the ${plural(n.computed ?? 0, "token")} computed before it was preempted`;
  if (hit === 0) return `${before}, none hit and all are computed again`;
  const own = n.own_hits === hit ? "" : `, ${count(n.own_hits ?? 0)} of them in blocks of its own`;
  const again = (n.computed ?? 0) - hit;
  // Blocks that it filled in its last step, and never computed, may be hit as well.
  if (again < 0) return `${before}, all are hit in the cache${own}, and ${count(-again)} more`;
  const rest = again > 0 ? `, and ${does(again, "token", "is", "are")} computed again` : "";
  return `${before}, ${count(hit)} ${are(hit)} hit in the cache${own}${rest}`;
}

/** @param {any} f of drafts_settled */
function rollBackWords(f) {
  const rejected = f.num_drafts - f.num_accepted;
  const left = plural(f.num_computed_tokens, "token");
  if (rejected === 0) return `, and ${left} ${are(f.num_computed_tokens)} computed`;
  return (
    `; ${does(rejected, "computed token", "counts", "count")} no more, which leaves ` +
    `${f.num_computed_tokens}, and the blocks stay`
  );
}

// -- losing blocks -------------------------------------------------------------------------------

/** @param {Told} told */
function preemptedWords({ f, n, e, to }) {
  const it = who(f, to);
  const given = n.taken_back ?? 0;
  const go = given === 1 ? "goes" : "go";
  const back = given
    ? `; the ${plural(given, "token")} that this step had given it ${go} back to the budget`
    : "";
  const lost =
    `${plural(f.num_computed_tokens, "computed token")} ` +
    `${f.num_computed_tokens === 1 ? "goes" : "go"} with its blocks, and it waits again${back}`;
  if (!f.by) return `${it} is preempted${colon(e.reason)}; ${lost}`;
  const by = f.by === f.request ? "by its own need: it" : `for ${f.by}, which`;
  const chosen = `it is chosen as ${reasonPhrase(e.reason)}`;
  return `${it} is preempted ${by} ${shortageWords(f)}; ${chosen}; ${lost}`;
}

/** @param {any} f of request_preempted */
function shortageWords(f) {
  return `needs ${plural(f.needs, "block")} and ${f.free} ${are(f.free)} free`;
}
