// @ts-check
/**
 * Why things are as they are: decisions in sentences, the newest first, each with a link to its
 * moment and the function of vLLM that decides it.
 */
import { pieceAt } from "../core/tokens.js";
import { plural } from "../words/format.js";
import { decidedBy, symbolUrl } from "../words/vllm_symbols.js";
import { decodeSentence, whySentence } from "../words/why.js";
import { el, reconcile, setAttribute, setText } from "./dom.js";
import { OneStop } from "./one_stop.js";

/** @import { Group } from "../core/history.js" */
/** @import { Store } from "../core/store.js" */
/** @import { Why } from "../core/why.js" */
/** @import { Telling } from "../words/why.js" */

const AT_FIRST = 3; // groups of steps
const MORE = 60;
const HOW = "Each line leads to its moment. Below it: the function of vLLM 0.26.0 that decides.";
const NOTHING =
  "Nothing has been decided here up to the cursor. What is, stands here with its numbers, step " +
  "by step.";

/** What a decision means to whom it is about. @type {Record<string, string>} */
const TONES = {
  admitted: "got",
  resumed: "got",
  scheduled: "got",
  decodes: "got",
  hit: "got",
  kept_waiting: "waits",
  behind: "waits",
  passed_over: "waits",
  skipped: "waits",
  preempted: "lost",
  evicted: "lost",
  uncached: "lost",
  aborted: "lost",
  refused: "lost",
  dropped: "lost",
  finished: "ended",
};

export class HistoryPart {
  /**
   * @param {Store} store
   * @param {string} title
   * @param {(most: number) => {groups: Group[], earlier: number}} read the newest groups of steps
   * @param {{request?: string, block?: number, most?: number, rest?: string, heading?: "h2"}}
   *   [about] whose history it is, how much is shown at first, what the rest is called, and how the
   *   title ranks where it opens the column
   */
  constructor(store, title, read, about = {}) {
    this.store = store;
    this.read = read;
    this.about = about;
    this.most = about.most ?? AT_FIRST;
    this.title = el(about.heading ?? "h3", { text: title });
    this.note = el("p", { class: "gb-note-small" });
    this.list = el("ol", { class: "gb-history", "aria-label": title });
    this.stop = new OneStop(this.list, ".gb-event-button", "a.gb-why-symbol");
    this.more = el("button", {
      class: "gb-button",
      type: "button",
      onclick: () => {
        this.most += MORE;
        this.update();
      },
    });
    this.elements = [this.title, this.list, this.more, this.note];
  }

  update() {
    const { groups, earlier } = this.read(this.most);
    setText(this.note, groups.length ? HOW : NOTHING);
    reconcile(
      this.list,
      groups,
      (group) => `${this.store.header?.trace_id} ${group.kind} ${group.first}`,
      () => el("li", {}, el(this.about.heading ? "h3" : "h4"), el("ul")),
      (node, group) => this.fill(node, group),
    );
    this.more.hidden = earlier === 0;
    setText(this.more, `Show more of ${plural(earlier, this.about.rest ?? "earlier step")}`);
    this.stop.keep();
  }

  /** @param {HTMLElement} node @param {Group} group */
  fill(node, group) {
    const [title, lines] = node.children;
    const steps = group.first === group.last ? "" : "s";
    const name = `Step${steps} ${group.first}${steps && `–${group.last}`}`;
    setText(title, name);
    const items = group.kind === "decode" ? group.items.slice(0, 1) : [...group.items];
    // Of a request the latest decision answers why it stands so; a step is told as it went.
    if (this.about.request !== undefined) items.reverse();
    const at = this.store.records[this.store.cursor];
    const words = (/** @type {Why} */ item) =>
      group.kind === "decode" ? decodeSentence(group) : whySentence(item, this.telling());
    reconcile(
      lines,
      items,
      // What is told of many steps stays the same line while there come more of them.
      (item) => (group.kind === "one" ? `${item.event.seq} ${item.decision}` : item.decision),
      (item) => this.line(item, words(item)),
      (row, item) => {
        const button = row.firstElementChild;
        if (group.kind !== "one") setText(button, words(item));
        setAttribute(button, "data-seq", String(item.event.seq));
        setAttribute(button, "aria-current", at === item.event ? "true" : null);
      },
    );
  }

  /** @param {Why} item @param {string} text */
  line(item, text) {
    const button = el("button", {
      class: "gb-event-button",
      type: "button",
      text,
      onclick: () => this.goTo(Number(button.dataset.seq)),
    });
    return el("li", { "data-tone": TONES[item.decision] ?? "" }, button, symbolLink(item));
  }

  /** @param {number} seq */
  goTo(seq) {
    this.store.jump(seq - this.store.header.base_seq);
  }

  /** @returns {Telling} */
  telling() {
    const { store } = this;
    return {
      ...this.about,
      config: store.header?.config,
      // Tokens never change, so that any state that has one has the right one.
      piece: (id, position) => {
        const record = store.state?.requests?.[id];
        return record && pieceAt(record, position);
      },
    };
  }
}

/** @param {Why} item */
function symbolLink({ decision, event }) {
  const symbol = decidedBy(event);
  if (!symbol)
    return el("small", { class: "gb-why-symbol", text: "vLLM 0.26.0 has nothing like it" });
  const { path, name, first, last } = symbol;
  return el(
    "a",
    {
      class: "gb-why-symbol",
      href: symbolUrl(symbol),
      target: "_blank",
      rel: "noreferrer noopener",
      title: `${path} ${first}–${last} in vLLM 0.26.0, ${decision.replaceAll("_", " ")}`,
    },
    el("span", { class: "gb-code", text: name }),
    el("small", { text: path.split("/").slice(-1)[0] }),
  );
}
