// @ts-check
/** One block in words. */
import { plural } from "../words/format.js";
import { TOUCH, USED, blockFacts } from "./blocks_model.js";

/** @import { Model } from "./blocks_model.js" */

/** @type {[number, string, string, string][]} bit, name, CSS colour, line or badge */
export const OUTLINES = [
  [TOUCH.allocated, "allocated", "event", "line"],
  [TOUCH.hit, "hit", "accent", "line"],
  [TOUCH.cached, "cached", "ok", "+"],
  [TOUCH.evicted, "evicted", "bad", "×"],
  [TOUCH.freed, "freed", "text", "dash"],
  [TOUCH.uncached, "uncached", "warn", "−"],
];

export const KIND_WORDS = [
  "free and empty",
  "free, content still cached",
  "in use",
  "the null block, never given",
];

/** @param {ReturnType<typeof blockFacts>} facts @param {Model} model @returns {string[]} */
export function blockLines(facts, model) {
  const lines = [`Block ${facts.id}: ${KIND_WORDS[facts.kind]}`];
  for (const owner of facts.owners.slice(0, 4))
    lines.push(`${owner.request}, logical block ${owner.logical}`);
  if (facts.kind === USED)
    lines.push(`${facts.fill} of ${model.pool.blockSize} tokens, held by ${facts.refs}`);
  if (facts.place >= 0)
    lines.push(
      facts.place === 0
        ? "first in the free queue: given next"
        : `${plural(facts.place, "block")} before it in the free queue`,
    );
  if (facts.hash) lines.push(`hash ${facts.hash}`);
  const bits = model.marks.get(facts.id) ?? 0;
  const did = OUTLINES.filter(([bit]) => bits & bit).map(([, name]) => name);
  if (did.length) lines.push(`in this step: ${did.join(", ")}`);
  lines.push(
    "measured: the engine's state at the cursor; fill is derived from num_computed_tokens",
  );
  return lines;
}
