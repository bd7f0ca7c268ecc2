// @ts-check
/** Decisions about blocks in plain sentences: looked up, shared, taken, evicted, cached, let go. */
import { UNCOMPUTED, uncomputedWords } from "./events.js";
import { blockList, count, does, list, plural, quote, ranges, tokenName } from "./format.js";
import { are, colon } from "./reasons.js";

/** @import { Numbers } from "../core/origins.js" */
/** @import { EventRecord } from "../core/records.js" */
/** @import { Telling, Told } from "./why.js" */

/** @param {any} f @param {Telling} to @returns {string} */
export function who(f, to) {
  return f.request === to.request ? "it" : f.request;
}

/** @param {any} f @param {Telling} to @returns {string} */
export function whose(f, to) {
  return f.request === to.request ? "its" : `${f.request}'s`;
}

/** @param {string} name "" where the log does not go back so far */
const someone = (name) => name || "a request from before this log";

/** @param {any[]} items @param {string} one @param {string} many */
const verb = (items, one, many) => (items.length === 1 ? one : many);

/** @type {Record<string, (told: Told) => string>} */
export const BLOCKS_SENTENCES = {
  looked_up: ({ f, n, e, to }) => `${foundWords(f, n, to)}${endWords({ f, n, e, to })}`,
  hit: ({ f, n, to }) =>
    `${who(f, to)} shares cached ${blockList(f.blocks)}: ${sharedWords(f, n)}${uncomputedWords(f)}`,
  allocated: ({ f, e, to }) =>
    `${who(f, to)} gets ${blockList(f.blocks)}, first in the free queue${fitsWords(f, e)}`,
  evicted: ({ f, n, e, to }) => {
    const lost = `loses ${contentWords(n, to)}`;
    return `block ${f.block} is given to ${who(f, to)} and ${lost}; it was ${because(e.reason)}`;
  },
  cached: ({ f, n, to }) => {
    const enter = verb(f.blocks, "is full and enters", "are full and enter");
    const places = Array.from(f.blocks, (_, k) => f.first_index + k);
    const where = `${verb(places, "logical block", "logical blocks")} ${ranges(places)}`;
    const blocks = `${whose(f, to)} ${where} (${blockList(f.blocks)})`;
    return `${blocks} ${enter} the prefix cache${copiesWords(n)}`;
  },
  uncached: ({ f, e, to }) =>
    `${whose(f, to)} ${blockList(f.blocks)} ${verb(f.blocks, "leaves", "leave")} the prefix ` +
    `cache${colon(e.reason)}`,
  left_uncomputed: ({ f, to }) =>
    `${whose(f, to)} ${blockList(f.blocks)} ${verb(f.blocks, "stays", "stay")} in the prefix ` +
    `cache, ${UNCOMPUTED}`,
  freed: ({ f, n, to }) => `${who(f, to)} lets go of ${blockList(f.blocks)}${restWords(f, n)}`,
};

/**
 * The same of one block, whose history it is.
 * @type {Record<string, (told: Told) => string>}
 */
export const ONE_BLOCK_SENTENCES = {
  allocated: ({ f, e, to }) =>
    `${f.request} gets it, ${placeWords(f.blocks, to.block)}${fitsWords(f, e)}`,
  hit: ({ f, n, to }) => {
    const others = n.holders.length > 0 ? `, beside ${list(n.holders)}` : " out of the free queue";
    const never = f.uncomputed.includes(to.block) ? ", though it was never computed" : "";
    return `its content hits: ${f.request} shares it${others}${never}`;
  },
  evicted: ({ f, n, e, to }) =>
    `it is given to ${f.request} and loses ${contentWords(n, to)}; it was ${because(e.reason)}`,
  cached: ({ f, n, to }) => {
    const logical = f.first_index + f.blocks.indexOf(to.block);
    const tokens = tokensWords(logical, to);
    return `it is full${tokens} of ${f.request} and enters the prefix cache${copiesWords(n)}`;
  },
  uncached: ({ f, e }) => `it leaves ${f.request}'s part of the prefix cache${colon(e.reason)}`,
  left_uncomputed: () => `it stays in the prefix cache, ${UNCOMPUTED}`,
  freed: ({ f, n, to }) => {
    const rest = f.returned.includes(to.block)
      ? "it is free"
      : `${list(n.holders) || "somebody"} ${verb(n.holders, "holds", "hold")} it still`;
    return `${f.request} lets go of it; ${rest}`;
  },
  reset: () => "the prefix cache is reset, and its content forgotten",
};

/** @param {number[]} blocks @param {number|undefined} block */
function placeWords(blocks, block) {
  const place = blocks.indexOf(block ?? -1) + 1;
  return `block ${place} of ${count(blocks.length)} from the head of the free queue`;
}

/** Why they could be had. @param {any} f @param {EventRecord} e */
function fitsWords(f, { reason }) {
  if (reason?.code !== "fits") return colon(reason);
  // At admission the whole sequence must fit, and cached blocks out of the queue count as well.
  const all = reason.needs > f.blocks.length ? " in all" : "";
  const beside = reason.watermark > 0 ? ` beside ${reason.watermark} that must stay free` : "";
  return `: ${plural(reason.needs, "block")}${all} needed${beside}, ${count(reason.free)} free`;
}

// -- looking up ----------------------------------------------------------------------------------

/** @param {any} f @param {Numbers} n @param {Telling} to */
function foundWords(f, n, to) {
  const tokens = `${whose(f, to)} ${plural(f.num_tokens, "token")}`;
  if (f.hit_tokens === 0) return `none of ${tokens} ${are(f.num_tokens)} cached`;
  const sources = (n.sources ?? []).map(
    (/** @type {[string, number]} */ [name, blocks]) =>
      `${plural(blocks, "block")} from ${name === f.request ? "itself" : someone(name)}`,
  );
  const still = f.preempted ? "still " : "";
  const where = `${blockList(f.hit_blocks)} (${list(sources)})`;
  return `${count(f.hit_tokens)} of ${tokens} ${are(f.hit_tokens)} ${still}cached, in ${where}`;
}

/** Where and why the walk over the prefix ended. @param {Told} told */
function endWords({ f, n, e: { reason }, to }) {
  if (reason?.code !== "first_miss") return colon(reason);
  const its = `; its logical block ${reason.block}`;
  const since = `${its} was cached by ${someone(n.cached_by)} in step ${n.cached_step}`;
  const lost = `in step ${n.lost_step}`;
  switch (n.miss) {
    case "evicted":
      return `${since} and evicted ${lost} for ${n.lost_to}`;
    case "reset":
      return `${since} and forgotten ${lost}, when the cache was reset`;
    case "uncached":
      return `${since} and dropped ${lost}, for it was never computed`;
    case "salted":
      return `${its} has the tokens of block ${n.block} of ${someone(n.other)}, under another salt`;
    case "parted": {
      const mine = tokenWords(n.token, to.piece?.(f.request, n.position));
      const theirs = tokenWords(n.other_token, to.piece?.(n.other, n.position));
      const nearest = `the nearest cached content (block ${n.block}, of ${someone(n.other)})`;
      return `${its} parts at position ${n.position}: ${mine}, where ${nearest} has ${theirs}`;
    }
    default:
      return `${its} is new: no cached content goes on from there`;
  }
}

/** `token 512 “␣cat”`. @param {number} token @param {string|undefined} text */
function tokenWords(token, text) {
  return text ? `token ${token} ${quote(tokenName(text))}` : `token ${token}`;
}

// -- holding and letting go ----------------------------------------------------------------------

/** @param {any} f of blocks_hit @param {Numbers} n */
function sharedWords(f, n) {
  const held = f.blocks.length - f.taken_from_free;
  const others = list(n.holders ?? []) || "others";
  const parts = [];
  const hold = verb(n.holders ?? [], "holds", "hold");
  if (held > 0) parts.push(`${count(held)} that ${others} ${hold}`);
  if (f.taken_from_free > 0)
    parts.push(`${count(f.taken_from_free)} that nobody held, out of the free queue`);
  return list(parts);
}

/** @param {Numbers} n of block_evicted @param {Telling} to */
function contentWords(n, to) {
  const unused = n.unused_since === undefined ? "" : `, unused since step ${n.unused_since}`;
  if (!n.cached_by) return `content from before this log${unused}`;
  const tokens = tokensWords(n.logical, to).replace(" with ", "");
  return `${tokens || "content"} of ${n.cached_by} (cached in step ${n.cached_step}${unused})`;
}

/** Which of a request's tokens a block holds. @param {number} logical @param {Telling} to */
function tokensWords(logical, to) {
  const size = to.config?.block_size;
  return size ? ` with tokens ${logical * size}–${(logical + 1) * size - 1}` : "";
}

/** @param {any} reason */
function because(reason) {
  return colon(reason).slice(2);
}

/** @param {Numbers} n */
function copiesWords(n) {
  return n.copies?.length ? `; the same content is in ${blockList(n.copies)} already` : "";
}

/** What becomes of blocks that were let go, last to first. @param {any} f @param {Numbers} n */
function restWords(f, n) {
  const [kept, empty] = [n.kept ?? 0, f.returned.length - (n.kept ?? 0)];
  const shared = f.blocks.length - f.returned.length;
  const others = list(n.holders ?? []) || "others";
  const parts = [
    empty > 0 && `${does(empty, "block", "is", "are")} free and empty, to be given next`,
    kept > 0 && `${does(kept, "block", "is", "are")} free with content kept, to be given last`,
    shared > 0 && `${does(shared, "block", "stays", "stay")} with ${others}`,
  ].filter((part) => part !== false);
  return parts.length > 0 ? `: ${parts.join("; ")}` : "";
}
