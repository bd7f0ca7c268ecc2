// @ts-check
/** The engine's rules in words: what each says, what it looks at, what it means where it breaks. */

import { blockList, does } from "./format.js";

/** @typedef {{sentence: string, unit: string, means: string}} RuleWords */

/** In the order of engine/integrity.py, with its sentences; a test compares. */
export const RULES = /** @type {Record<string, RuleWords>} */ ({
  one_place: {
    sentence: "each block is held by requests, or stands in the free queue, and never both",
    unit: "block",
    means: "It may be given to one request while another reads it, or to nobody ever again.",
  },
  ref_count: {
    sentence: "a block's reference count is the number of block tables that hold it",
    unit: "block",
    means: "A count too low frees a block under its reader; one too high never frees it.",
  },
  leaks: {
    sentence: "a block that no running request holds is free",
    unit: "block",
    means: "The pool has become smaller: nobody uses the block, and nobody can get it.",
  },
  queue: {
    sentence: "a queue is one unbroken chain without repetition, as long as it says",
    unit: "member",
    means: "Whoever walks the queue misses some of its members, or never comes to its end.",
  },
  hash_map: {
    sentence: "the hash map leads to the blocks that have this hash, and to all of them",
    unit: "entry",
    means: "A prompt may be given the keys and values of other tokens.",
  },
  null_block: {
    sentence: "block 0 is held by nobody, has no content and is never free",
    unit: "block",
    means: "Padding writes to block 0: a request that held it would read that.",
  },
  tables: {
    sentence: "only running requests hold blocks, and enough for the tokens they have computed",
    unit: "table",
    means: "Somebody who does not compute keeps blocks, or tokens have no place for their KV.",
  },
  tokens: {
    sentence: "no request has computed more tokens than are known of it or in flight",
    unit: "request",
    means: "KV was counted as computed for a token that does not exist.",
  },
  requests: {
    sentence: "an unfinished request stands in the queue that its status names",
    unit: "request",
    means: "The request is never scheduled again, or twice in one step.",
  },
  runner: {
    sentence: "the runner has the scheduler's block tables and tokens, as far as it was told",
    unit: "request",
    means: "The model reads and writes other blocks, or other tokens, than the scheduler decided.",
  },
  log: {
    sentence: "the log, folded, is the engine's state",
    unit: "record",
    means: "This page shows something else than what the engine has.",
  },
});

export const UNCOMPUTED_HOW = "blocks of the log's state that are hashed and were never computed";

/**
 * What none of the rules is about: as in vLLM, a victim by priority may leave blocks in the cache
 * that nobody computed.
 * @param {number[]} blocks such blocks now
 */
export function uncomputedNote(blocks) {
  const now = blocks.length
    ? `${does(blocks.length, "block", "is", "are")} such now: ${blockList(blocks)}. `
    : "None is such now. ";
  return (
    "No rule asks whether cached content was computed. cache_uncomputed_blocks is on, as vLLM " +
    "0.26.0 has it: a victim that got tokens in the step that preempts it leaves their blocks in " +
    `the prefix cache, and who hits them reads what stood there before. ${now}` +
    "Turn the setting off to have them taken out of the cache."
  );
}

/** A rule that this page does not know yet. @param {string} rule @returns {RuleWords} */
export function ruleWords(rule) {
  if (Object.hasOwn(RULES, rule)) return RULES[rule];
  return { sentence: rule.replaceAll("_", " "), unit: "thing", means: "" };
}

/** What is said of a check that was not made at the cursor. */
export const CHECKED_NOW = {
  wentOn: " The engine has gone on since.",
  later: " That is the engine as it is now: the moment at the cursor is before it. ",
  link: "Go there",
};
