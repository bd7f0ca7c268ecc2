// @ts-check
/**
 * How the shares of a decode become one softmax: what each left in memory, the largest score of
 * all, by how much each was too large, the sum, and the output that was stored.
 */
import { el, reconcile, setAttribute } from "../page/dom.js";
import { truth } from "../page/truth.js";
import { percent } from "../words/format.js";
import * as words from "../words/kernel.js";
import { remake } from "./parts.js";

/** @import { KernelTrace, Reduction, Share } from "../words/kernel.js" */
/** @import { TruthKind } from "../page/truth.js" */

export class ReductionTable {
  /** @param {(head: number) => void} choose the place of a query head in the program */
  constructor(choose) {
    this.choose = choose;
    this.heads = el("div", { class: "gbp-others", role: "group", "aria-label": "Query head" });
    this.body = el("tbody");
    const head = words.REDUCTION_COLUMNS.map((text) => el("th", { scope: "col", text }));
    this.element = el(
      "section",
      { class: "gbp-kreduce", hidden: true },
      el("h4", { text: words.REDUCTION }),
      this.heads,
      el("table", {}, el("thead", {}, el("tr", {}, ...head)), this.body),
    );
  }

  /** @param {KernelTrace} trace @param {number} head @param {number} at moves so far */
  update(trace, head, at) {
    const { reduction, query_heads: heads } = trace;
    if (!reduction) return;
    reconcile(
      this.heads,
      heads,
      String,
      (number) =>
        el("button", {
          class: "gbp-chip",
          type: "button",
          text: `query head ${number}`,
          onclick: () => this.choose(heads.indexOf(number)),
        }),
      (node, number) => setAttribute(node, "aria-pressed", String(heads[head] === number)),
    );
    this.heads.hidden = heads.length < 2;
    remake(this.body, { trace: trace.seconds, reduction, head, at }, () => rows(trace, head, at));
  }
}

/** @param {KernelTrace} trace @param {number} head @param {number} at */
function rows({ reduction, programs }, head, at) {
  if (!reduction) return [];
  const { maximum, total, norm } = reduction;
  const shares = reduction.shares.map((share, i) =>
    shareRow(share, `${i + 1} of ${programs.length}`, reduction, head, at),
  );
  const together = el(
    "tr",
    { class: "is-all" },
    el("th", { scope: "row", text: words.ALL_SHARES }),
    cell(at >= 1, at === 1, "derived", words.LARGEST_HOW, words.numberText(maximum[head])),
    el("td"),
    cell(at >= 3, at === 3, "derived", words.TOTAL_HOW, words.numberText(total[head])),
    cell(at >= 4, at === 4, "measured", words.OUTPUT_HOW, words.numberText(norm[head])),
    el("td"),
  );
  return [...shares, together];
}

/**
 * @param {Share} share @param {string} name @param {Reduction} reduction @param {number} head
 * @param {number} at
 */
function shareRow(share, name, { maximum, total }, head, at) {
  const [largest, factor, sum] = [share.maximum[head], share.shrink[head] ?? 0, share.total[head]];
  const shrunk = (sum ?? 0) * factor;
  const worth = shrunk / (total[head] || 1);
  const { numberText: text, SHARE_HOW, SHRUNK_HOW, SHRINK_HOW, WORTH_HOW } = words;
  const bar = el("i", { "aria-hidden": "true" });
  bar.style.width = `${at >= 4 ? Math.round(1000 * worth) / 10 : 0}%`;
  const part = cell(at >= 4, false, "derived", WORTH_HOW, percent(worth));
  part.append(el("b", {}, bar));
  return el(
    "tr",
    {},
    el("th", { scope: "row", text: name }),
    cell(true, at >= 1 && largest === maximum[head], "measured", SHARE_HOW, text(largest)),
    cell(at >= 2, at === 2, "derived", SHRINK_HOW, `× ${text(factor)}`),
    at >= 3
      ? cell(true, at === 3, "derived", SHRUNK_HOW, text(shrunk))
      : cell(true, false, "measured", SHARE_HOW, text(sum)),
    cell(true, false, "measured", SHARE_HOW, text(share.norm[head])),
    part,
  );
}

/**
 * @param {boolean} there @param {boolean} lit @param {TruthKind} kind @param {string} how
 * @param {string} text
 */
function cell(there, lit, kind, how, text) {
  return el("td", { class: lit ? "is-lit" : "" }, there ? truth(kind, how, text) : "");
}
