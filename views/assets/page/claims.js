// @ts-check
/** The claims: each with its verdict, what holds, where to read it, and this engine's figures. */
import {
  CLAIMS,
  CLAIMS_LEAD,
  CLAIMS_TITLE,
  LOADING,
  NO_CLAIM,
  VERDICT_TONES,
  figuresOf,
  saidText,
} from "../words/claims.js";
import { messageOf } from "../words/format.js";
import { el, reconcile, setText } from "./dom.js";
import { fillRows, sourceItem } from "./inspector_rows.js";

/** @import { ClaimMark } from "../core/document.js" */
/** @import { Store } from "../core/store.js" */
/** @import { Asked } from "./claim_marks.js" */

/**
 * @typedef {{number: number, claim: string, verdict: string, note: string, holds: string,
 *   sources: {text: string, url: string|null}[]}} Claim
 * @typedef {{component: string|null, name: string, said: string}} Place of the document
 */

const FILE = new URL("../claims/claims.json", import.meta.url);

export class Claims {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.store = store;
    /** @type {Claim[]|null} */
    this.claims = null;
    this.loading = false;
    /** Of these alone; null: of all. @type {Asked|null} */
    this.asked = null;
    /** What the list was drawn of. */
    this.drawn = "";
    this.search = /** @type {HTMLInputElement} */ (
      el("input", {
        type: "search",
        class: "gb-claims-search",
        placeholder: CLAIMS.search,
        "aria-label": CLAIMS.search,
        oninput: () => this.update(),
      })
    );
    this.about = el("button", {
      class: "gb-link-box",
      type: "button",
      title: CLAIMS.all,
      onclick: () => this.ask(null),
    });
    this.note = el("p", { class: "gb-note-small", role: "status" });
    this.list = el("ol", { class: "gb-claims-list" });
    this.scroller = el(
      "div",
      { class: "gb-inspector-scroll", tabindex: "0", role: "region", "aria-label": CLAIMS.name },
      el("h2", { text: CLAIMS_TITLE }),
      el("p", { class: "gb-note-small", text: CLAIMS_LEAD }),
      el("div", { class: "gb-claims-acts" }, this.search, this.about),
      this.note,
      this.list,
    );
    root.append(this.scroller);
  }

  /** @param {Asked|null} asked whose claims are wanted; null: all */
  ask(asked) {
    this.asked = asked;
    this.search.value = "";
    this.update();
    const first = asked && this.list.querySelector(`[data-claim="${asked.first}"]`);
    // The first of all stands in sight anyhow, below what says whose these are.
    const further = first?.previousElementSibling ? /** @type {HTMLElement} */ (first) : null;
    this.scroller.scrollTop = further ? further.offsetTop - 8 : 0;
  }

  /** Those that are asked for, the one in sight first. */
  get numbers() {
    if (!this.asked) return [];
    const { first, numbers } = this.asked;
    return [first, ...numbers.filter((each) => each !== first)];
  }

  /** As a mark with these would ask. @param {number[]} numbers @returns {Asked} */
  askedFor(numbers) {
    const wanted = new Set(numbers);
    const isSame = (/** @type {ClaimMark[]} */ marks) =>
      marks.length > 0 &&
      marks.every((mark) => wanted.has(mark.claim)) &&
      new Set(marks.map((mark) => mark.claim)).size === wanted.size;
    const place = this.marked.find(([, , marks]) => isSame(marks));
    const all = [...wanted];
    return { numbers: all, about: place?.[1] ?? CLAIMS.linked(all), first: numbers[0] };
  }

  async load() {
    if (this.loading || this.claims) return;
    this.loading = true;
    try {
      const answer = await fetch(FILE);
      if (!answer.ok) throw new Error(`The server answered ${answer.status}.`);
      this.claims = await answer.json();
      this.ask(this.asked);
    } catch (error) {
      setText(this.note, messageOf(error));
    }
    this.loading = false;
  }

  update() {
    if (!this.claims) {
      setText(this.note, LOADING);
      void this.load();
      return;
    }
    const shown = this.wanted(this.claims);
    this.about.hidden = !this.asked;
    setText(this.about, this.asked ? CLAIMS.of(this.asked.about) : "");
    const isUnknown = this.asked !== null && !this.search.value;
    setText(this.note, shown.length ? "" : isUnknown ? CLAIMS.unknown : NO_CLAIM);
    reconcile(
      this.list,
      shown,
      (claim) => `${claim.number} ${JSON.stringify(this.store.document.meta?.title ?? "")}`,
      (claim) => this.make(claim),
      (node, claim) => fillRows(node.querySelector("dl"), figuresOf(this.store, claim.number)),
    );
  }

  /** @param {Claim[]} claims */
  wanted(claims) {
    const words = this.search.value.trim().toLowerCase().split(/\s+/);
    return claims.filter((claim) => {
      if (this.asked && !this.asked.numbers.includes(claim.number)) return false;
      const { number, claim: text, verdict, note, holds } = claim;
      const all = [number, text, verdict, note, holds].join(" ").toLowerCase();
      return words.every((word) => all.includes(word));
    });
  }

  /** @param {Claim} claim */
  make({ number, claim, verdict, note, holds, sources }) {
    const tone = VERDICT_TONES[verdict] ?? "";
    return el(
      "li",
      { class: "gb-claim", "data-claim": number, "data-tone": tone },
      el(
        "p",
        { class: "gb-claim-said" },
        el("b", { text: `${number}` }),
        " ",
        el("q", { text: claim }),
      ),
      el("p", {}, el("span", { class: "gb-chip", "data-tone": tone, text: verdict }), ` ${note}`),
      el("p", { class: "lead", text: holds }),
      el("dl", { class: "gb-rows" }),
      el("ul", { class: "gb-list" }, ...sources.map(({ text, url }) => sourceItem(text, "", url))),
      this.places(number),
    );
  }

  /** All that has marks: the id of a box, its name, its marks. */
  get marked() {
    const { components, cards, views, meta } = this.store.document;
    /** @type {[string|null, string, ClaimMark[]][]} */
    const all = [
      ...components.map((c) => /** @type {any} */ ([c.id, c.label, marksOf(c)])),
      ...cards.map((c) => /** @type {any} */ ([null, c.title, (c.claims ?? []).flat()])),
      ...views.map((v) => /** @type {any} */ ([null, v.label, v.claims ?? []])),
      [null, CLAIMS.map, meta?.claims ?? []],
    ];
    return all;
  }

  /** Where the document on show says it, or is about it. @param {number} number */
  places(number) {
    const found = this.marked.flatMap(([component, name, marks]) =>
      marks
        .filter((mark) => mark.claim === number)
        .slice(0, 1)
        .map(({ said }) => ({ component, name, said })),
    );
    if (!found.length) return null;
    return el("div", { class: "gb-claim-places" }, ...found.map((each) => this.place(each)));
  }

  /** @param {Place} place */
  place({ component, name, said }) {
    const title = said ? saidText(said) : "";
    if (component === null) return el("small", { class: "gb-chip", title, text: name });
    return el("button", {
      class: "gb-link-box",
      type: "button",
      title,
      text: name,
      onclick: () => this.store.select({ component, request: null, block: null }),
    });
  }
}

/** @param {import("../core/document.js").Component} item */
function marksOf({ claims = [], source_claims: sources = [] }) {
  return [...claims, ...sources];
}
