// @ts-check
/** Prefill & decode lifecycle: requests over steps against the token budget, and their text. */
import { computedAt } from "../core/computed.js";
import { traceIndex } from "../core/trace_index.js";
import { el, reconcile, setText } from "../page/dom.js";
import { Parts } from "../page/pace.js";
import { isUnseen, watched } from "../page/sight.js";
import { setTruth } from "../page/truth.js";
import { nobodyAsked } from "../words/empty.js";
import { plural } from "../words/format.js";
import { LIFECYCLE, timelineText } from "../words/lifecycle.js";
import { momentKey, shownRequest } from "./cursor.js";
import { StreamCard } from "./lifecycle_card.js";
import { model } from "./lifecycle_model.js";
import { Timeline } from "./lifecycle_timeline.js";
import { MOST_ROWS, Sentence, Twin, legend, redrawOnChange, remake, section } from "./parts.js";

/** @import { Store } from "../core/store.js" */
/** @import { Model } from "./lifecycle_model.js" */

/** While the cursor walks, a frame has time for the words of some of the cards. */
const CARD_TURNS = 6;
/** So many cards, or fewer, stand below the timeline: beside it they would leave a hole there. */
const FEW = 4;

class LifecyclePanel {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.store = store;
    this.root = root;
    this.sentence = new Sentence(store);
    this.element = el("div", { class: "gbp gbp-lifecycle" });
    this.timeline = new Timeline(store, this.element);
    this.cards = el("div", { class: "gbp-cards" });
    this.more = el("p", { class: "gbp-more" });
    this.empty = el("p", { class: "gbp-empty" });
    this.twin = new Twin(LIFECYCLE.requests, LIFECYCLE.columns, () => this.twinRows());
    this.bars = new Twin(LIFECYCLE.bars, LIFECYCLE.barColumns, () => this.barRows());
    this.legend = el("div");
    const { timeline } = this;
    this.left = section(LIFECYCLE.timeline, "timeline", timeline.scroll, this.legend);
    this.right = section(LIFECYCLE.texts, "streams", this.cards, this.more, textLegend());
    this.columns = el("div", { class: "gbp-columns has-few" }, this.left, this.right);
    this.element.append(
      this.sentence.element,
      this.empty,
      this.columns,
      this.bars.element,
      this.twin.element,
    );
    root.append(this.element);
    /** @type {Map<string, StreamCard>} */
    this.known = new Map();
    /** @type {Model|null} */
    this.data = null;
    this.words = new Parts(store, [
      () => this.drawOpening(),
      ...Array.from({ length: CARD_TURNS }, (_, turn) => () => this.drawCards(turn)),
    ]);
    this.key = "";
    this.chosen = "";
    /** The request whose words were asked for last. */
    this.wanted = /** @type {string|null|undefined} */ (undefined);
    this.redraw = redrawOnChange(
      this.element,
      (force) => this.update(force),
      [],
      [this.timeline.scroll],
    );
    this.timeline.redraw = this.redraw.again;
  }

  update(force = false) {
    const { store } = this;
    const index = traceIndex(store);
    const chosen = store.selection?.request;
    const key = `${momentKey(store)} ${chosen} ${store.clock.walking}`;
    if (!force && key === this.key && !this.words.waits) return;
    this.key = key;
    this.element.classList.toggle("speculates", store.speculates);
    const { width, height } = this.redraw.size(this.timeline.scroll);
    const window = this.timeline.window(width || 600);
    const data = model(store, window);
    this.data = data;
    const colours = this.redraw.colours.get();
    this.empty.hidden = data.rows.length > 0 || index.rows.size > 0;
    setText(this.empty, `${nobodyAsked(store)} ${LIFECYCLE.empty}`);
    // Canvases first: a font set on a canvas makes the browser work through changed elements.
    if (width > 0) this.timeline.draw(data, colours, width, window, height);
    if (force || chosen !== this.wanted) this.words.now();
    else this.words.update();
    this.wanted = chosen;
    this.bars.later();
    this.twin.later();
  }

  drawOpening() {
    const { data, store } = this;
    if (!data) return;
    this.sentence.update(data.sentence);
    remake(this.legend, [store.overlaps], () => [lifecycleLegend(store.overlaps)]);
    this.timeline.plane.label(timelineText(data.step, data.rows.length));
  }

  /**
   * While the cursor walks, some cards at a time are brought up to date, of those in view; with the
   * first of them come new ones, and others go.
   * @param {number} turn
   */
  drawCards(turn) {
    const { data } = this;
    if (!data) return;
    if (turn === 0) this.placeCards(data);
    const { theme } = this.redraw.colours.get();
    const chosen = shownRequest(this.store);
    for (const [place, stream] of data.streams.entries()) {
      const card = this.known.get(stream.id);
      if (!card || place % CARD_TURNS !== turn) continue;
      if (isUnseen(this.store, card.element)) continue;
      const selected = stream.id === chosen && stream.id === this.store.selection?.request;
      card.update(stream, selected, theme);
    }
    if (turn === CARD_TURNS - 1) this.showChosen();
  }

  /** @param {Model} data */
  placeCards(data) {
    this.columns.classList.toggle("has-few", data.streams.length <= FEW);
    reconcile(
      this.cards,
      data.streams,
      (stream) => stream.id,
      (stream) => {
        const card = new StreamCard(this.store, stream.id);
        this.known.set(stream.id, card);
        return watched(card.element);
      },
    );
    for (const id of this.known.keys())
      if (!data.streams.some((stream) => stream.id === id)) this.known.delete(id);
    const hidden = data.requests - data.streams.length;
    const how = `requests in the state - the ${data.streams.length} shown`;
    const more = `and ${plural(hidden, "request")} more: select one in the timeline to read it`;
    setTruth(this.more, "derived", how, more);
    this.more.hidden = hidden <= 0;
  }

  /** A request that was just selected is in view: its cards scroll, the page does not. */
  showChosen() {
    const chosen = this.store.selection?.request ?? "";
    if (chosen === this.chosen) return;
    this.chosen = chosen;
    const card = this.known.get(chosen)?.element;
    if (!card) return;
    const [own, view] = [card.getBoundingClientRect(), this.cards.getBoundingClientRect()];
    if (own.top < view.top) this.cards.scrollTop += own.top - view.top;
    else if (own.bottom > view.bottom)
      this.cards.scrollTop += Math.min(own.bottom - view.bottom, own.top - view.top);
  }

  twinRows() {
    const data = this.data;
    if (!data) return [];
    const computed = computedAt(this.store);
    return data.rows.map((row) => {
      const request = this.store.state.requests?.[row.id];
      const past = row.cells.filter((cell) => !cell.future && cell.tokens !== undefined).slice(-4);
      return [
        row.id,
        request?.status ?? "not there yet",
        `${computed(row.id).done} of ${request?.num_tokens ?? 0}`,
        String(Object.keys(request?.output_token_ids ?? {}).length),
        past.map((cell) => `step ${cell.step}: ${cell.kind} of ${cell.tokens}`).join("; "),
      ];
    });
  }

  barRows() {
    const { data } = this;
    if (!data) return [];
    const past = data.steps.filter((bar) => !bar.future && bar.segments.length > 0);
    return past.slice(-MOST_ROWS).map(({ step, segments }) => [
      String(step),
      `${segments.reduce((sum, part) => sum + part.tokens, 0)} of ${data.budget}`,
      segments.map((part) => `${part.request}: ${part.kind} of ${part.tokens}`).join("; "),
    ]);
  }

  destroy() {
    this.redraw.destroy();
    this.words.stop();
    this.bars.destroy();
    this.twin.destroy();
    this.element.remove();
  }
}

/** @param {boolean} overlaps whether steps may */
function lifecycleLegend(overlaps) {
  /** @type {[string, string][]} */
  const inFlight = [
    ["is-flight", "in flight: what comes of it is not known yet"],
    ["is-dropped", "token dropped: it came too late"],
  ];
  return legend([
    ["is-prefill", "prefill chunk, with its tokens"],
    ["is-decode", "decode, one token"],
    ["is-waiting", "waiting"],
    ["is-stopped", "next in line, not admitted"],
    ["is-preempted", "preempted"],
    ["is-end", "finished"],
    ...(overlaps ? inFlight : []),
    ["is-verdicts", "beside a decode: drafts accepted and rejected"],
    ["is-playhead", "cursor; fainter is recorded after it"],
  ]);
}

function textLegend() {
  return legend([
    ["is-hit", "prefix hit"],
    ["is-now", "computed in this step"],
    ["is-scheduled", "scheduled, not computed yet"],
    ["is-todo", "not computed yet"],
    ["is-draft", "draft, not verified yet"],
    ["is-kept", "draft accepted in this step"],
    ["is-struck", "draft rejected in this step"],
  ]);
}

/**
 * @param {HTMLElement} root @param {Store} store
 * @returns {{update(): void, destroy(): void, panel: object}}
 */
export function mount(root, store) {
  const panel = new LifecyclePanel(root, store);
  panel.update(true);
  return { update: () => panel.update(), destroy: () => panel.destroy(), panel };
}
