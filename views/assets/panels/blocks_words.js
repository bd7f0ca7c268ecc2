// @ts-check
/** One block in words. */
import { COMPUTED_HOW } from "../core/computed.js";
import { UNCOMPUTED } from "../words/events.js";
import { list, plural, quote } from "../words/format.js";
import { TOUCH, USED } from "./blocks_model.js";

/** @import { LiveRow } from "../boxes/live.js" */
/** @import { Model, blockFacts } from "./blocks_model.js" */

/** @type {[number, string, string, string][]} bit, name, CSS colour, line or badge */
export const OUTLINES = [
  [TOUCH.allocated, "allocated", "event", "line"],
  [TOUCH.hit, "hit", "accent", "line"],
  [TOUCH.cached, "cached", "ok", "+"],
  [TOUCH.evicted, "evicted", "bad", "×"],
  [TOUCH.freed, "freed", "text", "dash"],
  [TOUCH.uncached, "uncached", "warn", "−"],
  [TOUCH.uncomputed, "uncomputed", "warn", "!"],
];
/** Outlines that are rare: they stand in the list of a step only where it has them. */
export const RARE = new Set(["uncached", "uncomputed"]);

const KIND_WORDS = [
  "free and empty",
  "free, content still cached",
  "in use",
  "the null block, never given",
];

/** @param {{fill: number, scheduled: number, stale: number}} block @param {number} size */
export function fillWords({ fill, scheduled, stale }, size) {
  const next = scheduled ? `, ${scheduled} more scheduled` : "";
  const old = stale ? `, ${plural(stale, "slot")} behind them with KV of rejected drafts` : "";
  return `${fill} of ${plural(size, "token")}${next}${old}`;
}

/** @param {ReturnType<typeof blockFacts>} facts @param {Model} model @returns {string[]} */
export function blockLines(facts, model) {
  const lines = [`Block ${facts.id}: ${KIND_WORDS[facts.kind]}`];
  for (const owner of facts.owners.slice(0, 4))
    lines.push(`${owner.request}, logical block ${owner.logical}`);
  const others = facts.owners.slice(4).map((owner) => owner.request);
  if (others.length) lines.push(`and ${list(others, 24)}`);
  if (facts.kind === USED) {
    lines.push(`${fillWords(facts, model.pool.blockSize)}, held by ${facts.refs}`);
  }
  if (facts.place >= 0)
    lines.push(
      facts.place === 0
        ? "first in the free queue: given next"
        : `${plural(facts.place, "block")} before it in the free queue`,
    );
  if (facts.hash) lines.push(`hash ${facts.hash}`);
  if (facts.uncomputed) lines.push(UNCOMPUTED);
  const bits = model.marks.get(facts.id) ?? 0;
  const did = OUTLINES.filter(([bit]) => bits & bit).map(([, name]) => name);
  if (did.length) lines.push(`in this step: ${did.join(", ")}`);
  lines.push(`measured: the engine's state at the cursor; its fill is derived: ${COMPUTED_HOW}`);
  return lines;
}

/**
 * A block's facts as rows, for the panel and the inspector.
 * @param {ReturnType<typeof blockFacts>} facts @param {number} blockSize
 * @returns {LiveRow[]}
 */
export function factRows(facts, blockSize) {
  const how = "the engine's state at the cursor";
  /** @type {LiveRow[]} */
  const rows = [];
  const add = (/** @type {string} */ name, /** @type {string} */ value) =>
    rows.push({ name, value, truth: "measured", how });
  add("state", KIND_WORDS[facts.kind]);
  const owners = facts.owners.map((owner) => `${owner.request} L${owner.logical}`);
  add("owners", owners.join(", ") || "nobody");
  add("references", String(facts.refs));
  add("hash", facts.hash || "none");
  if (facts.uncomputed) add("content", "never computed");
  if (facts.kind === USED) {
    const value = fillWords(facts, blockSize);
    const formula = `its owner's tokens - logical index × block size; ${COMPUTED_HOW}`;
    rows.push({ name: "fill", value, truth: "derived", how: formula });
  }
  if (facts.place >= 0) {
    const before =
      facts.place === 0 ? "first: given next" : `${plural(facts.place, "block")} before it`;
    rows.push({ name: "free queue", value: before, truth: "derived", how: "its place, counted" });
  }
  if (facts.text) add(facts.uncomputed ? "promised" : "content", quote(facts.text, 140));
  return rows;
}
