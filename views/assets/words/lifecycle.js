// @ts-check
/** Requests over steps, in a sentence: who got tokens, who waits, who lost, who is done. */
import { shareKind } from "../core/records.js";
import { causeWords, eventPhrase, passedOverWords } from "./events.js";
import { count, list, names, plural, quote, span } from "./format.js";
import { of, row, seqs, some } from "./parts.js";
import { because, colon } from "./reasons.js";

/** @import { EventRecord } from "../core/records.js" */
/** @import { Context, Part } from "./parts.js" */

export const LIFECYCLE = {
  empty: "The tokens of a request, its waiting and its share of each step appear here.",
  requests: "Requests over steps, at the cursor",
  columns: ["Request", "Status", "Computed", "Output", "Last shares"],
  bars: "Tokens of each step against the budget",
  barColumns: ["Step", "Tokens", "Of which"],
  timeline: "Requests over steps, against the token budget",
  texts: "Tokens as text",
};

/** The timeline, for those who do not see it. @param {number|null} step @param {number} shown */
export function timelineText(step, shown) {
  return (
    `Requests over steps: step ${step}, ${plural(shown, "request")} shown. ` +
    "Arrow keys move through steps and requests."
  );
}

/**
 * @param {string} opening @param {EventRecord[]} events @param {Context} context @returns {Part[]}
 */
export function lifecycleParts(opening, events, context) {
  const batch = of(events, "batch_scheduled")[0];
  const shares = sharesInWords(events, context);
  const other = lifecycleClauses(events);
  /** @type {Part[]} */
  const parts = [];
  if (batch) {
    const given = batch.facts.prefill_tokens + batch.facts.decode_tokens;
    const text = given
      ? `${opening} gave ${count(given)} of ${plural(batch.facts.max_num_batched_tokens, "token")}`
      : `${opening} gave no tokens${context.open === 0 ? ": all requests are finished" : ""}` +
        toldWords(batch.facts.finished);
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

/** An empty step has one purpose at least. @param {string[]} finished */
function toldWords(finished) {
  if (finished.length === 0) return "";
  const late = "the worker learns of an end with the next step";
  return `; the runner is told that ${list(finished)} ended (${late})`;
}

/** @param {Part[]} parts @returns {Part[]} */
function dropSemicolon(parts) {
  return parts.map((part, i) => (i === 0 ? { ...part, text: part.text.replace(/^; /, "") } : part));
}

/** @param {EventRecord[]} events @param {Context} context @returns {Part[]} */
function sharesInWords(events, context) {
  const lost = of(events, "request_preempted").filter((event) => event.phase === "schedule");
  const takenBack = new Set(lost.map((event) => event.facts.request));
  const promptTokens = (/** @type {EventRecord} */ event) =>
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

/** "an" before 8, 11, 18, 80 to 89 and their thousands. @param {number} n */
function article(n) {
  return /^(8\d*|11|18|1[18],)/.test(count(n)) ? "an" : "a";
}

/**
 * `a 32-token prefill chunk of r2 (it wanted 60, the budget had 32 left)`.
 * @param {EventRecord} event request_scheduled, a prefill @param {number | undefined} promptTokens
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

/**
 * `r3 (33 prompt tokens) and r4 (8) join the waiting queue`.
 * @param {EventRecord[]} events @returns {Part[]}
 */
function arrivalsInWords(events) {
  const arrived = of(events, "request_arrived");
  if (arrived.length === 0) return [];
  if (arrived.length > 4) {
    const ids = names(arrived.map((event) => event.facts.request));
    const tokens = span(arrived.map((event) => event.facts.num_prompt_tokens));
    const text =
      `${plural(arrived.length, "request")} join the waiting queue ` +
      `(${ids}; ${tokens} prompt tokens)`;
    return [{ text, seqs: seqs(arrived) }];
  }
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
 * @param {EventRecord[]} events @returns {Part[]}
 */
function lifecycleClauses(events) {
  const clauses = [
    ...some(of(events, "request_preempted"), 3, preemptedWords, "preemption"),
    ...some(of(events, "request_passed_over"), 2, passedOver, "passed-over request"),
    ...some(of(events, "admission_stopped"), 2, waitsWords, "stop"),
    ...some(of(events, "request_aborted"), 3, eventPhrase, "abort"),
    ...some(of(events, "request_finished"), 3, endsWords, "finished request"),
    ...some(of(events, "token_dropped"), 2, eventPhrase, "dropped token"),
  ];
  return clauses.map((part) => ({ ...part, text: `; ${part.text}` }));
}

/** @param {EventRecord} event request_passed_over */
function passedOver(event) {
  return passedOverWords(event.facts, event.reason);
}

/** @param {EventRecord} event request_finished */
function endsWords(event) {
  const f = event.facts;
  if (f.finish_reason !== "abort") return `${f.request} finishes${colon(event.reason)}`;
  return `${f.request} ends after ${plural(f.num_output_tokens, "token")}`;
}

/** @param {EventRecord} event request_preempted */
function preemptedWords(event) {
  const f = event.facts;
  const had = `its blocks (${plural(f.num_computed_tokens, "computed token")}) are given back`;
  const later = "what is still cached when it resumes is hit, the rest is computed again";
  return `${f.request} is preempted${causeWords(f)}${because(event.reason)}: ${had}; ${later}`;
}

/** @param {EventRecord} event admission_stopped */
function waitsWords(event) {
  const behind = event.facts.waiting - 1;
  const others = behind > 0 ? ` (${behind} more behind it)` : "";
  return `${event.facts.request} waits${colon(event.reason)}${others}`;
}

/** @param {EventRecord[]} events @returns {Part[]} */
function textInWords(events) {
  const said = of(events, "text_emitted").filter((event) => event.facts.text !== "");
  if (said.length === 0) return [];
  const parts = some(said, 4, (e) => `${e.facts.request} ${quote(e.facts.text, 18)}`, "text");
  return [{ text: " Out went ", seqs: [] }, ...row(parts), { text: ".", seqs: [] }];
}
