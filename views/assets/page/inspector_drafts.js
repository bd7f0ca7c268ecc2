// @ts-check
/** A request's latest drafts: which were accepted, how probable each was, and what waits. */
import { latestDrafts, verifiedDrafts } from "../core/speculation.js";
import { draftHow } from "../words/drafts.js";
import { eventPhrase } from "../words/events.js";
import { tokenName } from "../words/format.js";
import { el, reconcile, setAttribute, setText } from "./dom.js";
import { shareText } from "./inspector_candidates.js";
import { setTruth, truth } from "./truth.js";

/** @import { Draft } from "../core/speculation.js" */
/** @import { Store } from "../core/store.js" */

const WORDS = { pending: "", accepted: "accepted", rejected: "rejected", unjudged: "not judged" };

/** Nothing is shown where a request has had no drafts. */
export class DraftsPart {
  constructor() {
    this.verdict = el("p", { class: "gb-note-small" });
    this.rows = el("tbody");
    this.chanceHead = el("th", { scope: "col", text: "chance" });
    this.table = el(
      "table",
      { class: "gb-candidates gb-drafts", "aria-label": "Drafts" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("th", { scope: "col", text: "draft" }),
          el("th", { scope: "col", text: "model" }),
          this.chanceHead,
        ),
      ),
      this.rows,
    );
    this.waiting = el("p", { class: "gb-note-small" });
    this.element = el(
      "section",
      { "aria-label": "Latest drafts" },
      el("h3", { text: "Latest drafts" }),
      this.verdict,
      this.table,
      this.waiting,
    );
    this.element.hidden = true;
  }

  /** @param {Store} store @param {string} id */
  update(store, id) {
    const { verified, proposed } = latestDrafts(store, id);
    this.element.hidden = !verified && !proposed;
    this.table.hidden = !verified;
    const drafts = verified ? verifiedDrafts(verified) : [];
    setText(this.verdict, verified ? `Step ${verified.step}: ${phraseAt(store, verified)}.` : "");
    const waits = proposed && proposed.i > (verified?.i ?? -1);
    setText(this.waiting, waits ? `Step ${proposed.step}: ${phraseAt(store, proposed)}.` : "");
    this.chanceHead.hidden = drafts.every((draft) => draft.chance === undefined);
    reconcile(this.rows, drafts, (draft) => String(draft.position), makeRow, fillRow);
  }
}

/** @param {Store} store @param {{i: number}} mark */
function phraseAt(store, { i }) {
  return eventPhrase(/** @type {any} */ (store.records[i]));
}

function makeRow() {
  const bar = (/** @type {string} */ kind) =>
    el("td", { "data-bar": kind }, el("i", { "aria-hidden": "true" }), truth("measured", ""));
  const name = el("span", { class: "gb-code" });
  return el("tr", {}, el("th", { scope: "row" }, name, el("b")), bar("model"), bar("drawn"));
}

/** @param {HTMLElement} row @param {Draft} draft */
function fillRow(row, draft) {
  const [head, model, chance] = /** @type {any} */ (row.children);
  setAttribute(row, "data-verdict", draft.verdict);
  setText(head.firstElementChild, draft.id < 0 ? "padding" : tokenName(draft.text));
  setText(head.lastElementChild, WORDS[draft.verdict]);
  row.title = draftHow(draft);
  fillBar(model, draft.model, "the model's own probability of the draft");
  fillBar(chance, draft.chance, "probability of the draft in what tokens are drawn from");
  chance.hidden = draft.chance === undefined;
}

/** @param {HTMLElement} cell @param {number|undefined} share @param {string} how */
function fillBar(cell, share, how) {
  const [bar, number] = /** @type {any} */ (cell.children);
  bar.style.width = `${(share ?? 0) * 100}%`;
  setTruth(number, "measured", how, share === undefined ? "–" : shareText(share));
}
