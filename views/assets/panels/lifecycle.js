// @ts-check
/** Prefill & decode lifecycle: requests over steps against the token budget, and their text. */
import { computedAt } from "../core/computed.js";
import { traceIndex } from "../core/trace_index.js";
import { el, reconcile, setText } from "../page/dom.js";
import { Parts, Rest } from "../page/pace.js";
import { isOutOfSight, watched } from "../page/sight.js";
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
/** @import { Model, Stream } from "./lifecycle_model.js" */

/** While the cursor walks, a frame has time for the words of some of the cards. */
const CARD_TURNS = 6;
/** So many cards, or fewer, stand below the timeline: beside it they would leave a hole there. */
const FEW = 4;
/** Cards out of sight are drawn when nothing has changed for so long. */
const UNSEEN_AFTER_MS = 100;

/**
 * Where a card stands. It outlives the request, so that it is known whether what another moment
 * puts there is in sight: most of a jump's work are texts, and few of them are.
 */
class Place {
  /** @param {Store} store @param {number} number */
  constructor(store, number) {
    this.store = store;
    this.key = String(number);
    this.element = watched(el("article", { class: "gbp-card" }));
    /** @type {StreamCard|null} */
    this.card = null;
    /** @type {Stream|null} */
    this.shown = null;
  }

  /** @param {Stream} stream @param {string|null} chosen @param {string} theme */
  draw(stream, chosen, theme) {
    if (this.card?.request !== stream.id)
      this.card = new StreamCard(this.store, stream.id, this.element);
    const selected = stream.id === chosen && stream.id === this.store.selection?.request;
    this.card.update(stream, selected, theme);
    this.shown = stream;
  }
}

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
    /** @type {Map<string, Place>} by request */
    this.places = new Map();
    this.made = 0;
    this.unseen = new Rest(() => this.drawUnseen(), UNSEEN_AFTER_MS);
    /** Whether all cards are to be drawn, in sight or not. */
    this.all = false;
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
    this.all = force || chosen !== this.wanted;
    if (this.all) this.words.now();
    else this.words.update();
    this.wanted = chosen;
    this.unseen.update();
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
   * Cards in sight are brought up to date, while the cursor walks some of them at a time; with the
   * first of them come new ones, and others go.
   * @param {number} turn
   */
  drawCards(turn) {
    const { data } = this;
    if (!data) return;
    if (turn === 0) this.placeCards(data);
    const { theme } = this.redraw.colours.get();
    const chosen = shownRequest(this.store);
    for (const [k, stream] of data.streams.entries()) {
      const place = this.places.get(stream.id);
      if (!place || k % CARD_TURNS !== turn) continue;
      if (!this.all && isOutOfSight(place.element)) continue;
      place.draw(stream, chosen, theme);
    }
    if (turn === CARD_TURNS - 1) this.showChosen();
  }

  /** Draw the cards that were out of sight. */
  drawUnseen() {
    const { theme } = this.redraw.colours.get();
    const chosen = shownRequest(this.store);
    for (const stream of this.data?.streams ?? []) {
      const place = this.places.get(stream.id);
      if (place && place.shown !== stream) place.draw(stream, chosen, theme);
    }
  }

  /** Who stays keeps the place; who comes takes one that is left. @param {Model} data */
  placeCards(data) {
    this.columns.classList.toggle("has-few", data.streams.length <= FEW);
    const staying = new Set(data.streams.map((stream) => stream.id));
    const left = [...this.places].filter(([id]) => !staying.has(id)).map(([, place]) => place);
    this.places = new Map(
      data.streams.map(({ id }) => [id, this.places.get(id) ?? left.shift() ?? this.newPlace()]),
    );
    reconcile(
      this.cards,
      [...this.places.values()],
      (place) => place.key,
      (place) => place.element,
    );
    const hidden = data.requests - data.streams.length;
    const how = `requests in the state - the ${data.streams.length} shown`;
    const more = `and ${plural(hidden, "request")} more: select one in the timeline to read it`;
    setTruth(this.more, "derived", how, more);
    this.more.hidden = hidden <= 0;
  }

  newPlace() {
    this.made += 1;
    return new Place(this.store, this.made);
  }

  /** A request that was just selected is in view: its cards scroll, the page does not. */
  showChosen() {
    const chosen = this.store.selection?.request ?? "";
    if (chosen === this.chosen) return;
    this.chosen = chosen;
    const card = this.places.get(chosen)?.element;
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
    this.unseen.stop();
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
 * @returns {import("../page/panel_place.js").Panel & {panel: object}}
 */
export function mount(root, store) {
  const panel = new LifecyclePanel(root, store);
  panel.update(true);
  return {
    update: () => panel.update(),
    back() {
      panel.timeline.top = 0; // what scrolls begins at its top again
      panel.update(true);
    },
    destroy: () => panel.destroy(),
    panel,
  };
}
