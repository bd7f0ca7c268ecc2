// @ts-check
/** The tokens that stood to be chosen, with their probabilities: a table of small bars. */
import { howSampled } from "../words/events.js";
import { percent, tokenName } from "../words/format.js";
import { el, reconcile, setAttribute, setText } from "./dom.js";
import { setTruth, truth } from "./truth.js";

/** @import { EventRecord } from "../core/records.js" */

const LEAST_SHOWN = 0.0005;
const MODEL_HOW =
  "softmax of the logits, as the model gave them; the most probable tokens and the chosen one";
const DRAWN_HOW =
  "in the distribution that the token was drawn from: after logit_bias, penalties, min_tokens, " +
  "temperature, min_p, top_k and top_p";
const FORBIDDEN_HOW = `${DRAWN_HOW}; they leave it nothing, so it could not be drawn`;

/**
 * @typedef {Object} Candidate
 * @property {number} id
 * @property {string} text
 * @property {number} model
 * @property {number|undefined} drawn undefined where the token was not drawn
 * @property {boolean} chosen
 */

/** The candidates of one choice; nothing is shown until `update` is given a token_sampled event. */
export class CandidatesPart {
  constructor() {
    this.how = el("p", { class: "gb-note-small" });
    this.drawnHead = el("th", { scope: "col", text: "drawn from" });
    this.rows = el("tbody");
    this.table = el(
      "table",
      { class: "gb-candidates", "aria-label": "Candidates" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("th", { scope: "col", text: "token" }),
          el("th", { scope: "col", text: "model" }),
          this.drawnHead,
        ),
      ),
      this.rows,
    );
    this.element = el(
      "section",
      { "aria-label": "Candidates of the latest token" },
      el("h3", { text: "Candidates of the latest token" }),
      this.how,
      this.table,
    );
    this.element.hidden = true;
  }

  /** @param {EventRecord|undefined} event token_sampled */
  update(event) {
    this.element.hidden = !event;
    if (!event) return;
    setText(this.how, howChosen(event));
    this.drawnHead.hidden = event.facts.greedy;
    reconcile(this.rows, candidatesOf(event.facts), (item) => `${item.id}`, makeRow, fillRow);
  }
}

/** @param {any} facts of a token_sampled event @returns {Candidate[]} */
function candidatesOf(facts) {
  return facts.candidates.map((/** @type {number} */ id, /** @type {number} */ i) => ({
    id,
    text: facts.texts[i],
    model: facts.probabilities[i],
    drawn: facts.drawn_from[i],
    chosen: id === facts.token,
  }));
}

/** @param {EventRecord} event token_sampled */
function howChosen({ step, facts: f }) {
  const choice = f.greedy ? `${howSampled(f)} (greedy)` : "is drawn at random";
  return `Step ${step}, ${f.request}: token ${f.token} ${choice}.`;
}

/** @param {Candidate} item */
function makeRow(item) {
  const bar = (/** @type {string} */ kind) =>
    el("td", { "data-bar": kind }, el("i", { "aria-hidden": "true" }), truth("measured", ""));
  return el(
    "tr",
    {},
    el(
      "th",
      { scope: "row" },
      el("span", { class: "gb-code", text: tokenName(item.text) }),
      el("small", { text: `${item.id}` }),
      el("b", {}),
    ),
    bar("model"),
    bar("drawn"),
  );
}

/** @param {HTMLElement} row @param {Candidate} item */
function fillRow(row, item) {
  const [head, model, drawn] = /** @type {any} */ (row.children);
  setAttribute(row, "data-chosen", item.chosen ? "" : null);
  setText(head.lastElementChild, item.chosen ? "chosen" : "");
  fillBar(model, item.model, MODEL_HOW);
  drawn.hidden = item.drawn === undefined;
  if (item.drawn !== undefined) fillBar(drawn, item.drawn, item.drawn ? DRAWN_HOW : FORBIDDEN_HOW);
}

/** @param {HTMLElement} cell @param {number} share @param {string} how */
function fillBar(cell, share, how) {
  const [bar, number] = /** @type {any} */ (cell.children);
  bar.style.width = `${share * 100}%`;
  setTruth(number, "measured", how, shareText(share));
}

/** @param {number} share */
export function shareText(share) {
  return share > 0 && share < LEAST_SHOWN ? "< 0.1 %" : percent(share);
}
