// @ts-check
/** One request's text as it comes, its tokens apart, and how long they took. */
import { COMPUTED_HOW } from "../core/computed.js";
import { meanLength } from "../core/speculation.js";
import { FIRST_HOW, meanHow } from "../core/timing.js";
import { el, reconcile, setAttribute, setText } from "../page/dom.js";
import { setTruth } from "../page/truth.js";
import { requestColour } from "../words/colours.js";
import { DRAFT_RATE_HOW, MEAN_LENGTH_HOW, draftHow } from "../words/drafts.js";
import { count, does, micros, percent, plural } from "../words/format.js";
import { MAX_PIECES } from "./lifecycle_model.js";

/** @import { Store } from "../core/store.js" */
/** @import { Interval } from "../core/timing.js" */
/** @import { TruthKind } from "../page/truth.js" */
/** @import { Stream } from "./lifecycle_model.js" */

/**
 * @typedef {{name: string, interval?: Interval, value?: string, truth: TruthKind, how: string}}
 *   Time or another figure of the request
 */

/** So many tokens of a long prompt are shown at its beginning and at its end. */
const PROMPT_HEAD = 32;
const PROMPT_TAIL = 24;
const LEAST_GAP = 12;

/** One request's text as it comes, its tokens apart, and how long they took. */
export class StreamCard {
  /** @param {Store} store @param {string} id @param {HTMLElement} element to stand in */
  constructor(store, id, element) {
    this.request = id;
    this.element = element;
    this.id = el("b", { class: "gbp-id", text: id });
    this.parent = el("small", { class: "gbp-parent" });
    this.status = el("span", { class: "gbp-pill" });
    this.counts = el("span", { class: "gbp-num gbp-counts" });
    this.bar = el("div", { class: "gbp-progress", "aria-hidden": "true" });
    this.prompt = el("span", { class: "gbp-prompt" });
    this.output = el("span", { class: "gbp-output" });
    this.slots = el("span", { class: "gbp-slots" });
    this.drafts = el("span", { class: "gbp-drafts" });
    this.caret = el("span", { class: "gbp-caret", "aria-hidden": "true" });
    this.why = el("p", { class: "gbp-why" });
    this.times = el("dl", { class: "gbp-times" });
    const head = el(
      "button",
      { class: "gbp-card-head", type: "button" },
      this.id,
      this.parent,
      this.status,
      this.counts,
    );
    head.addEventListener("click", () => store.select({ request: id }));
    this.head = head;
    element.replaceChildren(
      head,
      this.bar,
      el(
        "div",
        { class: "gbp-text", tabindex: 0, role: "group", "aria-label": `Text of ${id}` },
        el("p", {}, this.prompt, this.output, this.slots, this.drafts, this.caret),
      ),
      this.why,
      this.times,
    );
    this.promptKey = "";
    this.marksKey = "";
    /** @type {string[]} the output as it is shown */
    this.texts = [];
    /** @type {Element[]} */
    this.fresh = [];
    this.firstOutput = 0;
    /** @type {number[]} */
    this.places = [];
  }

  /** @param {Stream} stream @param {boolean} selected @param {string} theme */
  update(stream, selected, theme) {
    this.element.style.setProperty("--gbp-hue", requestColour(stream.id, theme));
    this.element.classList.toggle("is-selected", selected);
    setAttribute(this.head, "aria-pressed", String(selected));
    setText(
      this.status,
      stream.status === "finished" ? `finished: ${stream.finish}` : stream.status,
    );
    setAttribute(this.status, "data-status", stream.status);
    setText(this.parent, stream.parent && `of ${stream.parent}`);
    const how =
      `${plural(stream.numPrompt, "prompt token")}; ${does(stream.hit, "token", "was", "were")} ` +
      `hit in the cache at the latest admission; ${stream.output.length} generated, ` +
      `at most ${stream.maxTokens}${inFlightHow(stream)}`;
    setTruth(this.counts, "measured", how, countsText(stream));
    this.updateBar(stream);
    this.updatePrompt(stream);
    this.updateOutput(stream);
    this.markNow(stream);
    setText(this.why, stream.why);
    this.why.hidden = stream.why === "";
    this.updateTimes(stream);
  }

  /** @param {Stream} stream */
  updateBar(stream) {
    const whole = Math.max(
      1,
      stream.known + stream.placeholders,
      stream.done + stream.scheduled, // drafts are computed before it is known whether they stay
    );
    const ran = stream.now && !stream.scheduled ? stream.now.to - stream.now.from : 0;
    const now = Math.min(ran, stream.done);
    const hit = Math.min(stream.hit, stream.done - now);
    const parts = [
      ["hit", hit],
      ["done", stream.done - now - hit],
      ["now", now],
      ["scheduled", stream.scheduled],
    ];
    reconcile(
      this.bar,
      parts,
      ([name]) => String(name),
      ([name]) => el("i", { class: `gbp-${name}` }),
      (node, [, size]) => {
        node.style.width = `${(Number(size) / whole) * 100}%`;
      },
    );
    const next = stream.scheduled
      ? `, ${does(stream.scheduled, "token", "is", "are")} scheduled`
      : "";
    this.bar.title =
      `derived: ${stream.done} of ${plural(stream.known, "known token")} have KV${next} ` +
      `(${COMPUTED_HOW})`;
  }

  /** @param {Stream} stream */
  updatePrompt(stream) {
    const key = `${stream.prompt.length}`;
    if (key === this.promptKey) return;
    this.promptKey = key;
    this.marksKey = "";
    const pieces = shorten(stream.prompt);
    this.places = pieces.map(([place]) => place);
    this.prompt.classList.toggle("is-ids", stream.asIds);
    this.prompt.replaceChildren(
      ...pieces.map(([place, text]) =>
        el("span", {
          class: place < 0 ? "gbp-gap" : "gbp-tok",
          text: place < 0 ? text : visibleEnds(text),
        }),
      ),
    );
  }

  /** @param {Stream} stream */
  updateOutput(stream) {
    const first = Math.max(0, stream.output.length - MAX_PIECES);
    if (this.firstOutput !== first) {
      this.output.replaceChildren();
      this.texts = [];
      this.firstOutput = first;
    }
    this.output.classList.toggle("is-ids", stream.asIds);
    const wanted = stream.output.length - first;
    while (this.texts.length > wanted) {
      this.texts.pop();
      this.output.lastElementChild?.remove();
    }
    for (let k = 0; k < wanted; k += 1) {
      const text = stream.output[first + k];
      if (this.texts[k] === text) continue;
      const node =
        this.output.children[k] ?? this.output.appendChild(el("span", { class: "gbp-tok" }));
      node.textContent = visibleEnds(text);
      this.texts[k] = text;
    }
    for (const node of this.fresh) node.classList.remove("is-new");
    this.fresh = [];
    for (let k = Math.max(0, wanted - stream.newOutput); k < wanted; k += 1) {
      this.fresh.push(this.output.children[k]);
      this.output.children[k].classList.add("is-new");
    }
    const { from, to } = stream.accepted;
    for (let k = 0; k < wanted; k += 1)
      this.output.children[k].classList.toggle("is-accepted", first + k >= from && first + k < to);
    this.caret.hidden = stream.status !== "running";
    this.updateSlots(stream);
    this.updateDrafts(stream);
  }

  /**
   * Drafts that wait for the model's verdict, and those that it has just rejected.
   * @param {Stream} stream
   */
  updateDrafts({ drafts }) {
    reconcile(
      this.drafts,
      drafts,
      (draft) => `${draft.verdict} ${draft.position} ${draft.id}`,
      (draft) =>
        el(draft.verdict === "rejected" || draft.verdict === "unjudged" ? "s" : "span", {
          class: "gbp-draft",
          "data-verdict": draft.verdict,
          text: draft.id < 0 ? "▢" : visibleEnds(draft.text),
        }),
      (node, draft) => {
        node.title = draftHow(draft);
      },
    );
  }

  /** A place for each token that is on its way. @param {Stream} stream */
  updateSlots({ placeholders }) {
    if (this.slots.children.length === placeholders) return;
    const how =
      "measured: num_output_placeholders of the request: a step in flight samples this token, so " +
      "the next step counts on it and does not know it yet";
    const slots = Array.from({ length: placeholders }, () =>
      el("i", { class: "gbp-slot", role: "img", "aria-label": "not known yet", title: how }),
    );
    this.slots.replaceChildren(...slots);
  }

  /** Which tokens were hit, are computed, are computed in this step. @param {Stream} stream */
  markNow(stream) {
    const { hit, done, scheduled, now } = stream;
    const key = [hit, done, scheduled, now?.from, now?.to].join(" ");
    if (key === this.marksKey) return;
    this.marksKey = key;
    const places = this.places ?? [];
    for (let k = 0; k < places.length; k += 1) {
      const place = places[k];
      const list = this.prompt.children[k].classList;
      if (place < 0) {
        list.toggle("is-hit", places[k + 1] <= hit);
        continue;
      }
      const current = now !== null && place >= now.from && place < now.to;
      list.toggle("is-hit", place < hit);
      list.toggle("is-now", current);
      list.toggle("is-scheduled", current && place >= done);
      list.toggle("is-todo", place >= done && !current);
    }
  }

  /** @param {Stream} stream */
  updateTimes(stream) {
    const { first, mean } = stream.timing;
    /** @type {Time[]} */
    const items = [];
    if (first)
      items.push({ name: "first token after", interval: first, truth: "measured", how: FIRST_HOW });
    if (mean)
      items.push({
        name: "between tokens",
        interval: mean,
        truth: "derived",
        how: `mean of ${plural(mean.gaps, "gap")}: ${meanHow(mean.gaps)}`,
      });
    const { tally } = stream;
    if (tally.steps) {
      items.push({
        name: "drafts accepted",
        value: `${tally.accepted} of ${tally.drafted} (${percent(tally.accepted / tally.drafted)})`,
        truth: "derived",
        how: DRAFT_RATE_HOW,
      });
      items.push({
        name: "tokens a step with drafts",
        value: meanLength(tally).toFixed(2),
        truth: "derived",
        how: MEAN_LENGTH_HOW,
      });
    }
    reconcile(
      this.times,
      items,
      (item) => item.name,
      (item) => el("div", {}, el("dt", { text: item.name }), el("dd", {}, el("span"), el("small"))),
      (node, item) => {
        const [number, small] = node.lastChild.children;
        if (!item.interval) return setTruth(number, item.truth, item.how, item.value);
        const stood = standing(item.interval);
        const note = stood ? `; the time includes the ${stood}` : "";
        setTruth(number, item.truth, item.how + note, micros(item.interval.us));
        const inSteps = `with ${stood}; ${micros(item.interval.engineUs)} in steps`;
        setTruth(small, "derived", IN_STEPS_HOW, stood ? inSteps : "");
      },
    );
  }
}

const IN_STEPS_HOW = "the sum of the measured times of the phases in between";

/**
 * A stepped or paced engine stands still between steps: then its own time stands beside it.
 * @param {Interval} interval
 */
function standing({ us, engineUs, paused }) {
  if (us <= engineUs * 1.03) return "";
  return paused ? "pauses" : "waits between steps";
}

/** What the counts say of tokens in flight. @param {Stream} stream */
function inFlightHow({ placeholders, toDrop }) {
  const coming = does(placeholders, "token", "is", "are");
  const parts = [
    placeholders && `${coming} on the way from steps in flight, not known yet`,
    toDrop && `${plural(toDrop, "token")} in flight that a reset made void`,
  ].filter(Boolean);
  return parts.length ? `; ${parts.join("; ")}` : "";
}

/** @param {Stream} stream */
function countsText(stream) {
  const prompt =
    stream.hit > 0
      ? `${count(stream.numPrompt)} prompt, ${count(stream.hit)} hit`
      : `${count(stream.numPrompt)} prompt`;
  const again = stream.preemptions ? ` · preempted ${stream.preemptions}×` : "";
  const coming = stream.placeholders ? ` + ${stream.placeholders} coming` : "";
  const void_ = stream.toDrop ? ` · ${stream.toDrop} to drop` : "";
  return `${prompt} · ${stream.output.length}${coming}/${stream.maxTokens} out${again}${void_}`;
}

/** A line end is shown and kept. @param {string} text */
function visibleEnds(text) {
  return text.includes("\n") ? text.replaceAll("\n", "⏎\n") : text === "" ? "\u200b" : text;
}

/**
 * A long prompt's beginning, where a prefix is hit, and its end; the place of what stands between
 * is -1.
 * @param {string[]} pieces @returns {[number, string][]}
 */
function shorten(pieces) {
  const all = pieces.map((text, place) => /** @type {[number, string]} */ ([place, text]));
  const left = pieces.length - PROMPT_HEAD - PROMPT_TAIL;
  if (left <= LEAST_GAP) return all;
  const gap = /** @type {[number, string]} */ ([-1, ` … ${count(left)} tokens … `]);
  return [...all.slice(0, PROMPT_HEAD), gap, ...all.slice(-PROMPT_TAIL)];
}
