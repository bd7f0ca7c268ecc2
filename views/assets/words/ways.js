// @ts-check
/** The ways to reserve memory, in words. */
import { PAGED } from "../core/memory_parts.js";
import { count, plural } from "./format.js";

/** @import { Memory, Parts } from "../core/memory_parts.js" */
/** @import { TruthKind } from "../page/truth.js" */

/** @typedef {{text: string, how?: string}} Said a derived number of it says how on hover */

/** @type {Record<string, {label: string, reserves: (memory: Memory) => string, how: string}>} */
export const WAYS = {
  max: {
    label: "Maximum length",
    reserves: ({ modelLength }) => `${count(modelLength)} slots each`,
    how: "each request reserves max_model_len slots",
  },
  pow2: {
    label: "Power of two",
    reserves: () => "prompt, output rounded up",
    how:
      "each request reserves its prompt and the next power of two of its output, which counts " +
      "as long as it may get: max_tokens, and max_model_len in all",
  },
  oracle: {
    label: "True length",
    reserves: () => "as if known beforehand",
    how:
      "each request reserves the slots that it will fill. Of one that runs nobody knows them; " +
      "it counts as going on for as long as it may: prompt + max_tokens, and max_model_len in " +
      "all, less the last token, which is never stored",
  },
  paged: {
    label: "Paged",
    reserves: ({ blockSize }) => `blocks of ${blockSize}, as they fill`,
    how: "what this engine does: each request holds the blocks of its table",
  },
};

/** @type {Record<keyof Parts, string>} */
export const PARTS = {
  tokens:
    "slots with a token's keys and values, or getting them in this step; a slot of a shared " +
    "block counts once",
  reserved: "slots held for tokens to come, where the request goes on for as long as it may",
  internal: "slots held that the request will never fill: internal fragmentation",
  external:
    "free slots, while the first request in line finds no gap that is long enough: external " +
    "fragmentation",
  free: "slots that nobody holds, while nobody finds no room",
};

export const PLACED_HOW =
  "requests come and go as they really do; each takes the first gap that is long enough, and who " +
  "finds none stands in line";

const BATCH_HOW = "of the requests that run and wait now, in order, so many fit at once";

/** @param {string} name @returns {[TruthKind, string]} */
export function roomHow(name) {
  if (name === PAGED) return ["measured", "requests in the running queue; each has its blocks"];
  return ["derived", `of those that run, how many have their piece at this moment; ${PLACED_HOW}`];
}

/** @param {string} name */
export function batchHow(name) {
  const how =
    name === PAGED
      ? "those that run, and waiting ones while free blocks hold their known tokens, without " +
        "counting on prefix hits; they grow later"
      : "their pieces laid side by side";
  return `${BATCH_HOW}: ${how}. Seats are not counted`;
}

/**
 * What the moment shows: whom the same memory would not hold, or what it would take.
 * @param {Memory} memory @returns {Said[]}
 */
export function besideWords(memory) {
  const { running, ways } = memory;
  const [most] = ways;
  const paged = ways[ways.length - 1];
  if (running.length === 0) {
    return [
      { text: `Nothing runs at this moment: each way has all ` },
      { text: plural(memory.size, "slot"), how: "(num_gpu_blocks − 1) × block_size" },
      { text: " free." },
    ];
  }
  const said = most.room.length < running.length ? whoFits(memory) : whatItTakes(memory);
  const { tokens } = memory;
  if (tokens === paged.parts.tokens) return said;
  return [
    ...said,
    { text: " Paged stores " },
    {
      text: `${plural(tokens, "token")} in ${plural(paged.parts.tokens, "slot")}`,
      how: "num_computed_tokens of all that run, beside the filled slots of their blocks",
    },
    { text: ": a shared block is stored once, and one piece each cannot share." },
  ];
}

/** @param {Memory} memory @returns {Said[]} */
function whoFits({ running, ways }) {
  const all = running.length === 1 ? "the one request" : `these ${count(running.length)} requests`;
  return [
    { text: "With the same memory, reserving the maximum length would hold " },
    { text: `${count(ways[0].room.length)} of ${all}`, how: WAYS.max.how },
    { text: "; paged holds " },
    { text: running.length === 1 ? "it" : `all ${count(running.length)}`, how: WAYS.paged.how },
    { text: "." },
  ];
}

/** @param {Memory} memory @returns {Said[]} */
function whatItTakes({ running, ways, size }) {
  const [most] = ways;
  const paged = ways[ways.length - 1];
  const who = running.length === 1 ? "the one request" : `all ${plural(running.length, "request")}`;
  return [
    { text: `Each way holds ${who}. Reserving the maximum length takes ` },
    { text: plural(size - most.parts.free, "slot"), how: WAYS.max.how },
    { text: ", paged " },
    { text: count(size - paged.parts.free), how: "blocks held × block_size" },
    { text: "." },
  ];
}
