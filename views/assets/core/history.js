// @ts-check
/**
 * A history: decisions step by step, in groups, the newest first. Steps that are all alike, such as
 * those of a long decode or of waiting for a seat, become one group.
 */
import { originsOf } from "./origins.js";
import { asTold, decisionsAbout } from "./why.js";

/** @import { Origins } from "./origins.js" */
/** @import { Store } from "./store.js" */
/** @import { Why } from "./why.js" */

/** @typedef {{step: number, items: Why[], like: string}} Entry one step; "" is like no other */
/**
 * @typedef {Object} Group
 * @property {number} first step
 * @property {number} last step
 * @property {number} steps that have something to tell
 * @property {Why[]} items of the last step; of many decode steps the last share, then what else
 *   happened in them, the latest first
 * @property {"decode" | "same" | "one"} kind decode: one token each; same: the same in each step
 */

/** Steps that may still get records while a later one has begun: two are in flight at most. */
const OPEN_STEPS = 3;
const ONE_STEP = /** @type {const} */ ("one");

export class RequestHistory {
  /** @param {string} request */
  constructor(request) {
    this.request = request;
    /** @type {Origins|null} */
    this.origins = null;
    /** @type {Entry[]} */
    this.entries = [];
    this.next = 0;
  }

  /**
   * The groups up to the cursor, newest first, and how many steps are older than those.
   * @param {Store} store @param {number} most groups
   */
  read(store, most) {
    const origins = originsOf(store);
    if (origins !== this.origins) {
      this.origins = origins;
      this.entries = [];
      this.next = 0;
    }
    this.extend(origins);
    return groups(this.entries, cursorSeq(store), most);
  }

  /** The steps that have come since, and those that were still open. @param {Origins} origins */
  extend(origins) {
    const open = origins.steps[Math.max(0, this.next - OPEN_STEPS)];
    while (this.entries.length > 0 && this.entries[this.entries.length - 1].step >= open)
      this.entries.pop();
    const begin = origins.begins.get(this.request) ?? origins.steps.length;
    for (let k = Math.max(begin, this.next - OPEN_STEPS); k < origins.steps.length; k += 1) {
      const step = origins.steps[k];
      const items = decisionsAbout(origins, this.request, step);
      if (items.length > 0) this.entries.push({ step, items, like: likeness(items) });
    }
    this.next = origins.steps.length;
  }
}

/**
 * The decisions about a block up to the cursor, in groups as above. Who holds it is told of it
 * alone, where an event tells it of all its blocks.
 * @param {Store} store @param {number} block @param {number} most
 */
export function blockHistory(store, block, most) {
  const origins = originsOf(store);
  /** @type {Entry[]} */
  const entries = [];
  const holders = holdersAtFirst(origins.header, block);
  for (const event of origins.blocks.get(block) ?? []) {
    const last = entries[entries.length - 1];
    const told = asTold(origins, event);
    if (event.type === "blocks_freed") holders.delete(event.facts.request);
    const item = { ...told, numbers: { ...told.numbers, holders: [...holders] } };
    if (HOLDS.has(event.type)) holders.add(event.facts.request);
    if (last?.step === event.step) last.items.push(item);
    else entries.push({ step: event.step, items: [item], like: "" });
  }
  return groups(entries, cursorSeq(store), most);
}

const HOLDS = new Set(["blocks_allocated", "blocks_hit"]);

/** @param {any} header @param {number} block @returns {Set<string>} */
function holdersAtFirst(header, block) {
  const requests = Object.entries(header?.state?.requests ?? {});
  const holds = (/** @type {any} */ { block_table: table }) =>
    Object.values(table ?? {}).includes(block);
  return new Set(requests.filter(([, request]) => holds(request)).map(([id]) => id));
}

/**
 * All decisions of a step up to the cursor, in order; the shares of plain decodes as one.
 * @param {Store} store @param {number} step
 * @param {number} most decisions, the rest is counted
 * @returns {{groups: Group[], earlier: number}}
 */
export function stepHistory(store, step, most) {
  const origins = originsOf(store);
  const upto = cursorSeq(store);
  const all = (origins.events.get(step) ?? [])
    .filter((event) => event.seq <= upto)
    .map((event) => asTold(origins, event));
  const items = decodesTogether(all);
  const shown = items.slice(0, most);
  const group = { first: step, last: step, steps: 1, items: shown, kind: ONE_STEP };
  return { groups: items.length > 0 ? [group] : [], earlier: items.length - shown.length };
}

/** @param {Why[]} items of a step @returns {Why[]} */
function decodesTogether(items) {
  const decodes = items.filter(isDecode);
  if (decodes.length < 2) return items;
  const last = decodes[decodes.length - 1];
  const requests = decodes.map((item) => item.event.facts.request);
  const together = { decision: "decodes", event: last.event, numbers: { requests } };
  return items.flatMap((item) => (item === last ? [together] : isDecode(item) ? [] : [item]));
}

/** @param {Store} store */
function cursorSeq(store) {
  return (store.header?.base_seq ?? 0) + store.cursor;
}

/**
 * @param {Entry[]} entries @param {number} upto sequence number @param {number} most
 * @returns {{groups: Group[], earlier: number}} newest first; and how many steps came before
 */
function groups(entries, upto, most) {
  /** @type {Group[]} */
  const made = [];
  let like = "";
  let k = entries.length - 1;
  for (; k >= 0; k -= 1) {
    const { step, items, like: own } = entries[k];
    if (items[0].event.seq > upto) continue;
    const seen = items[items.length - 1].event.seq <= upto;
    const told = seen ? items : items.filter((item) => item.event.seq <= upto);
    const last = made[made.length - 1];
    // The latest step is told in full, whatever it is like.
    if (last && made.length > 1 && own && own === like) join(last, step, told, own);
    else {
      if (made.length === most) break;
      made.push({ first: step, last: step, steps: 1, items: told, kind: ONE_STEP });
      like = own;
    }
  }
  return { groups: made, earlier: k + 1 };
}

/**
 * @param {Group} group @param {number} step @param {Why[]} items of that step
 * @param {string} like
 */
function join(group, step, items, like) {
  group.first = step;
  group.steps += 1;
  if (like !== DECODE) {
    group.kind = "same";
    return;
  }
  if (group.kind === ONE_STEP) {
    const share = group.items.filter((item) => !isNoShare(item));
    group.items = [...share, ...group.items.filter(isNoShare).reverse()];
  }
  group.kind = "decode";
  group.items.push(...items.filter(isNoShare).reverse());
}

const DECODE = "decode";
const DECODES = new Set(["scheduled", "allocated", "cached"]);
const WAITS = new Set(["kept_waiting", "behind", "passed_over", "skipped"]);

/** @param {Why} item */
const isNoShare = (item) => item.decision !== "scheduled";

/** One token, all that was wanted. @param {Why} item */
const isDecode = ({ decision, event: { facts, reason } }) =>
  decision === "scheduled" && facts.num_tokens === 1 && reason?.code === "whole_request";

/**
 * A word for steps that can be told together; "" where a step is to be told by itself.
 * @param {Why[]} items @returns {string}
 */
function likeness(items) {
  if (items.some(isDecode) && items.every((item) => DECODES.has(item.decision))) return DECODE;
  // Whoever is first in the queue is looked up at each try, and may find less than before.
  const fates = items.filter((item) => item.decision !== "looked_up");
  if (fates.length !== 1 || !WAITS.has(fates[0].decision)) return "";
  const { decision, event } = fates[0];
  const found = items.map((item) => item.event.facts.hit_blocks?.join());
  return [decision, JSON.stringify(event.reason), event.facts.request, ...found].join(" ");
}

