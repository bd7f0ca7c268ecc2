// @ts-check
/**
 * The monitor: whether the engine's own rules hold, as the last check at or before the cursor
 * found it. Nothing here judges; the engine checks itself (engine/integrity.py) and logs it.
 */
import { lastAside, wentOnSince } from "../core/asides_index.js";
import { capital, micros, plural } from "../words/format.js";
import { CHECKED_NOW, UNCOMPUTED_HOW, ruleWords, uncomputedNote } from "../words/rules.js";
import { el, reconcile, setAttribute, setText } from "./dom.js";
import { setTruth } from "./truth.js";

/** @import { EventRecord } from "../core/records.js" */
/** @import { Store } from "../core/store.js" */

/** @typedef {{message: string, block: number|null, request: string}} Broken */
/** @typedef {{rule: string, checked: number, broken: Broken[]}} RuleRow */

const CHECK_TITLE = "Read all of the engine's books, between two phases; nothing is changed";

export class Rules {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.store = store;
    this.busy = false;
    /** The moment of the past from which the engine was asked to check itself; -1: from none. */
    this.askedAt = -1;
    this.verdict = el("p", { class: "gb-rules-verdict", role: "status" });
    this.when = el("span");
    this.since = el("span");
    this.there = el("button", {
      class: "gb-link-box",
      type: "button",
      text: CHECKED_NOW.link,
      onclick: () => this.goThere(),
    });
    this.button = el("button", {
      class: "gb-button",
      type: "button",
      text: "Check now",
      onclick: () => void this.check(),
    });
    this.always = /** @type {HTMLInputElement} */ (
      el("input", {
        type: "checkbox",
        onchange: () => (store.checksPhases = this.always.checked),
      })
    );
    this.list = el("ul", { class: "gb-rules" });
    this.uncomputed = el("p", { class: "gb-note-small" });
    root.append(
      el(
        "div",
        { class: "gb-inspector-scroll", tabindex: "0", role: "region", "aria-label": "Rules" },
        el("h2", { text: "Rules that must hold" }),
        this.verdict,
        el("p", { class: "gb-note-small" }, this.when, this.since, this.there),
        el("div", { class: "gb-rules-acts" }, this.button, this.alwaysLabel()),
        this.list,
        this.uncomputed,
      ),
    );
  }

  alwaysLabel() {
    return el("label", {}, this.always, " after every phase while I step");
  }

  async check() {
    const { store } = this;
    this.busy = true;
    // Whoever looks at the past stays there, and is shown what the check of the present found.
    this.askedAt = store.following || store.atHead ? -1 : store.cursor;
    if (this.askedAt < 0) store.following = true;
    await store.command("check");
    this.busy = false;
    store.changed();
  }

  /** Whether the check of the present is shown, beside a moment of the past. */
  get ofNow() {
    return this.askedAt >= 0 && this.askedAt === this.store.cursor;
  }

  /** The check that is told of. */
  get shown() {
    const upto = this.ofNow ? this.store.head : this.store.cursor;
    return lastAside(this.store, "integrity_checked", undefined, upto);
  }

  goThere() {
    const check = this.shown;
    if (check) this.store.jump(this.store.indexOf(check));
  }

  /** @returns {"none"|"ok"|"broken"} */
  get state() {
    const check = this.shown;
    if (!check) return "none";
    return check.facts.num_violations ? "broken" : "ok";
  }

  update() {
    const { store } = this;
    const check = this.shown;
    const rows = check ? rowsOf(check) : [];
    setAttribute(this.verdict, "data-state", this.state);
    setText(this.verdict, verdictOf(check, rows));
    const isLater = check !== null && store.indexOf(check) > store.cursor;
    const wentOn = check !== null && !isLater && wentOnSince(store, check);
    setText(this.since, isLater ? CHECKED_NOW.later : wentOn ? CHECKED_NOW.wentOn : "");
    this.there.hidden = !isLater;
    if (check) setTruth(this.when, "measured", "the engine's check of itself", whenOf(check));
    else setText(this.when, "Up to this moment of the log the books were not checked.");
    const why = store.whyNoCommand;
    setAttribute(this.button, "disabled", why || this.busy ? "" : null);
    this.button.title = why || CHECK_TITLE;
    setAttribute(this.always, "disabled", why ? "" : null);
    this.always.checked = store.checksPhases;
    const blocks = uncomputedOf(store);
    this.uncomputed.hidden = blocks === null;
    if (blocks) setTruth(this.uncomputed, "measured", UNCOMPUTED_HOW, uncomputedNote(blocks));
    reconcile(
      this.list,
      rows,
      (row) => `${check?.seq} ${row.rule}`,
      (row) => this.ruleItem(row),
    );
  }

  /** @param {RuleRow} row */
  ruleItem({ rule, checked, broken }) {
    const words = ruleWords(rule);
    const state = broken.length ? "broken" : "ok";
    const sentence = el("span", { text: capital(words.sentence) });
    const amount = el("small");
    setTruth(amount, "measured", "looked at under this rule", plural(checked, words.unit));
    const item = el("li", { "data-state": state, "data-rule": rule }, sentence, amount);
    if (!broken.length) return item;
    if (words.means) item.append(el("p", { class: "gb-rules-means", text: words.means }));
    item.append(el("ul", {}, ...broken.map((each) => this.brokenItem(each))));
    return item;
  }

  /** @param {Broken} broken */
  brokenItem({ message, block, request }) {
    const link = (/** @type {string} */ text, /** @type {any} */ selection) =>
      el("button", {
        class: "gb-link-box",
        type: "button",
        text,
        onclick: () => this.store.select({ component: null, ...selection }),
      });
    return el(
      "li",
      {},
      `${message}. `,
      block === null ? null : link(`block ${block}`, { request: null, block }),
      request ? link(request, { request, block: null }) : null,
    );
  }
}

/**
 * Blocks at the cursor whose hash promises KV that nobody wrote; null where there can be none.
 * @param {Store} store
 */
function uncomputedOf({ header, state }) {
  if (header?.config?.cache_uncomputed_blocks !== true) return null;
  const blocks = Object.entries(state?.blocks ?? {});
  return blocks.filter(([, block]) => block.uncomputed).map(([id]) => Number(id));
}

/** @param {EventRecord} check @returns {RuleRow[]} broken rules come first */
function rowsOf({ facts }) {
  /** @type {RuleRow[]} */
  const rows = facts.rules.map((/** @type {string} */ rule, /** @type {number} */ i) => ({
    rule,
    checked: facts.checked[i] ?? 0,
    broken: brokenOf(facts, rule),
  }));
  return rows.sort((a, b) => Number(b.broken.length > 0) - Number(a.broken.length > 0));
}

/** @param {any} facts @param {string} rule @returns {Broken[]} */
function brokenOf(facts, rule) {
  return facts.broken.flatMap((/** @type {string} */ each, /** @type {number} */ i) =>
    each === rule
      ? [
          {
            message: facts.messages[i] ?? "",
            block: facts.blocks[i] >= 0 ? facts.blocks[i] : null,
            request: facts.requests[i] ?? "",
          },
        ]
      : [],
  );
}

/** @param {EventRecord|null} check @param {RuleRow[]} rows */
function verdictOf(check, rows) {
  if (!check) return "Not checked yet";
  const broken = rows.filter((row) => row.broken.length).length;
  if (!broken) return `All ${rows.length} rules hold`;
  const places = plural(check.facts.num_violations, "place");
  return `${broken} of ${rows.length} rules ${broken === 1 ? "is" : "are"} broken, in ${places}`;
}

/** @param {EventRecord} check */
function whenOf(check) {
  const took = check.duration_us === undefined ? "" : `, in ${micros(check.duration_us)}`;
  return `Checked before ${check.facts.before} of step ${check.step}${took}.`;
}
