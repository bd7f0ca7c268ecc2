// @ts-check
/** What is said of jumping through a log, and of bookmarks. */
import { count } from "./format.js";

/** @import { Kind, Sought } from "../core/moments.js" */
/** @import { EventRecord } from "../core/records.js" */

/** @type {Record<Sought, [string, string]>} one, and many */
const NAMES = {
  any: ["moment of any kind", "any kind"],
  preemption: ["preemption", "preemptions"],
  resumption: ["resumption", "resumptions"],
  hit: ["prefix hit", "prefix hits"],
  eviction: ["eviction", "evictions"],
  eager: ["eager step", "eager steps"],
  rejection: ["rejected draft", "rejected drafts"],
  finish: ["finish", "finishes"],
  abort: ["abort", "aborts"],
};

/** @type {Record<Kind, string>} */
const MEANINGS = {
  preemption: "a running request lost its blocks and waits again",
  resumption: "a preempted request runs again",
  hit: "cached blocks were given to a request",
  eviction: "a block's cached content went, for somebody else's",
  eager: "a step ran without a graph",
  rejection: "a request had drafts that the model did not choose",
  finish: "a request came to its end",
  abort: "a request was taken back",
};

/** @param {Sought} kind @param {number} n */
export function momentOption(kind, n) {
  return `${NAMES[kind][1]} (${count(n)})`;
}

/** @param {Sought} kind @param {1|-1} way */
export function jumpTitle(kind, way) {
  const means = kind === "any" ? "" : `: ${MEANINGS[kind]}`;
  const key = way > 0 ? "j" : "Shift+J";
  return `To the ${way > 0 ? "next" : "previous"} ${NAMES[kind][0]} (${key})${means}`;
}

/**
 * There is none further.
 * @param {Sought} kind @param {1|-1} way @param {number} all of that kind in the log
 */
export function noneFurther(kind, way, all) {
  const [one] = NAMES[kind];
  const rare = "nothing to jump to: no preemption, prefix hit, eviction or the like";
  if (!all) return `This log has ${kind === "any" ? rare : `no ${one}`} so far.`;
  const where = way > 0 ? "after" : "before";
  const those = all === 1 ? "the only one is" : `all ${count(all)} are`;
  return `No ${one} ${where} this moment: ${those} ${way > 0 ? "before" : "after"} it, or here.`;
}

/** @param {Kind} kind @param {EventRecord} event what a mark on the slider stands for */
export function markWords(kind, { step, facts }) {
  const who = facts.request ? ` of ${facts.request}` : "";
  return `step ${step}: ${NAMES[kind][0]}${kind === "eager" ? "" : who}`;
}

export const JUMP = {
  name: "Jump",
  choose: "Moments to jump to",
  chooseTitle: "Which moments to jump to; they are marked above the slider",
  previous: "Previous such moment",
  next: "Next such moment",
};

/** A bookmark's first name. @param {{step: number, phase: string}|null} at */
export function bookmarkName(at) {
  if (!at) return "the start";
  return at.phase === "command" ? `before step ${at.step}` : `step ${at.step}, ${at.phase}`;
}

export const BOOKMARKS = {
  name: "Bookmarks",
  title: "Bookmarks: moments of this log, kept with this tab and in the trace that you save",
  add: "Mark this moment",
  drop: "Remove the mark here",
  none: "Nothing is marked yet. Press b, or the button above, to mark the moment at the cursor.",
  gone: "This moment is no longer in the log: its oldest records were folded up.",
  go: "Go",
  field: "Name of the bookmark",
  to: (/** @type {string} */ name) => `To ${name}`,
  remove: (/** @type {string} */ name) => `Remove the bookmark ${name}`,
  full: "There are as many bookmarks in this log as it may have. Remove one first.",
};
