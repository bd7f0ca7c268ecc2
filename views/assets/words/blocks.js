// @ts-check
/** Blocks, in a sentence: taken, hit, evicted, cached, freed. */
import { eventPhrase, uncomputedWords } from "./events.js";
import { blockList, count, list, names, plural } from "./format.js";
import { of, row, seqs, some } from "./parts.js";
import { because, colon } from "./reasons.js";

/** @import { EventRecord } from "../core/records.js" */
/** @import { Part } from "./parts.js" */

const EVICTED_AS = " (unused for longest: the head of the free queue)";

export const QUEUE = {
  title: "Free queue, in order: ",
  length: "length of the free queue",
  next: ", given next",
  cached: "its content is still cached; giving it evicts that",
  empty: "empty",
  /** @param {number} shown */
  rest: (shown) => `length of the free queue - the ${shown} shown`,
};

export const NO_TABLE =
  "No request yet. The blocks that one holds stand here in the order of its tokens, each with " +
  "the physical block behind it.";

export const HOLDERS = "running";
export const SHARERS = "shared by";
export const SHARERS_HOW = "blocks that stand in the block tables of the same requests, counted";

/** Who shares which blocks. @param {string[]} requests @param {number[]} blocks */
export const sharedText = (requests, blocks) =>
  `${list(requests, 64)} share ${blockList(blocks)}: select the first of them`;

/** @param {string} opening @param {EventRecord[]} events @returns {Part[]} */
export function blockParts(opening, events) {
  const looked = of(events, "prefix_looked_up");
  const groups = [
    some(of(events, "prefix_cache_reset"), 2, eventPhrase, "reset"),
    verb(
      "took ",
      of(events, "blocks_allocated"),
      4,
      (e) => `${blockList(e.facts.blocks)} for ${e.facts.request}`,
    ),
    verb(
      "found ",
      looked.filter((e) => e.facts.hit_tokens > 0),
      3,
      foundWords,
    ),
    verb(
      "hit cached ",
      of(events, "blocks_hit"),
      3,
      (e) => `${blockList(e.facts.blocks)} for ${e.facts.request}${uncomputedWords(e.facts)}`,
    ),
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
    verb(
      "left uncomputed in the cache ",
      of(events, "blocks_left_uncomputed"),
      2,
      (e) => `${blockList(e.facts.blocks)} of ${e.facts.request}`,
    ),
    verb("freed ", of(events, "blocks_freed"), 4, freedWords),
    missedInWords(looked.filter((e) => e.facts.hit_tokens === 0)),
    verb(
      "found no room for ",
      of(events, "allocation_failed"),
      3,
      (e) => `${e.facts.request}${colon(e.reason)}`,
    ),
    verb("preempted ", of(events, "request_preempted"), 3, preemptedWords),
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
  const fit = tokens === 1 ? "its token fits" : `its ${count(tokens)} tokens fit`;
  const none = "it gave no tokens, so nothing ran and the pool stays as it was";
  const why = tokens ? `${fit} into blocks already held` : none;
  return [{ text: `${opening} moved no block: ${why}.`, seqs: [batch.seq] }];
}

/**
 * A verb and what it was done to, event by event.
 * @param {string} verb @param {EventRecord[]} events @param {number} most
 * @param {(e: EventRecord) => string} words
 * @returns {Part[]}
 */
function verb(verb, events, most, words) {
  if (events.length === 0) return [];
  return [{ text: verb, seqs: [] }, ...row(some(events, most, words, "time"))];
}

/** @param {EventRecord} event prefix_looked_up, with a hit */
function foundWords({ facts: f }) {
  const kept = f.preempted ? ", kept since it was preempted" : "";
  return `${f.hit_tokens} of ${f.request}'s ${plural(f.num_tokens, "token")} cached${kept}`;
}

/**
 * Who has no cached prefix; a reason that several have is given once.
 * @param {EventRecord[]} events prefix_looked_up, without a hit @returns {Part[]}
 */
function missedInWords(events) {
  if (events.length === 0) return [];
  /** @type {Map<string, EventRecord[]>} */
  const byReason = new Map();
  for (const event of events) {
    const why = event.reason?.code === "first_miss" ? "" : because(event.reason);
    byReason.set(why, [...(byReason.get(why) ?? []), event]);
  }
  const parts = [...byReason].map(([why, missed]) => ({
    text: `${names(missed.map((event) => event.facts.request))}${why}`,
    seqs: seqs(missed),
  }));
  return [{ text: "found no cached prefix for ", seqs: [] }, ...row(parts)];
}

/** @param {EventRecord[]} events @returns {Part[]} */
function evictedInWords(events) {
  const evicted = of(events, "block_evicted");
  if (evicted.length === 0) return [];
  const ids = evicted.map((event) => event.facts.block);
  const which = ids.length > 5 ? plural(ids.length, "block") : blockList(ids);
  const why = evicted.every((event) => event.reason?.code === "free_queue_head") ? EVICTED_AS : "";
  const whom = list([...new Set(evicted.map((event) => event.facts.request))]);
  const text = `evicted the cached content of ${which} for ${whom}${why}`;
  return [{ text, seqs: seqs(evicted) }];
}

/** @param {EventRecord} event request_preempted */
function preemptedWords({ facts: f }) {
  return `${f.request}${f.by && f.by !== f.request ? ` for ${f.by}` : ""}`;
}

/** @param {EventRecord} event blocks_freed */
function freedWords(event) {
  const { request, blocks, returned } = event.facts;
  const kept = blocks.length - returned.length;
  return `${blockList(blocks)} of ${request}${kept > 0 ? ` (${kept} still shared)` : ""}`;
}
