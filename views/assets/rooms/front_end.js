// @ts-check
/**
 * AsyncLLM's inside: how the loop stands, who is submitted and not taken in yet, and the streams in
 * which text goes out.
 */
import { el, reconcile, setAttribute } from "../page/dom.js";
import { themeOf } from "../page/theme.js";
import { setTruth, truth } from "../page/truth.js";
import { requestColour } from "../words/colours.js";
import { count } from "../words/format.js";
import * as words from "../words/rooms.js";
import { Streams } from "./streams.js";

/** @import { Moment } from "../boxes/moment.js" */
/** @import { Store } from "../core/store.js" */

const ROW = 30;
const MOST_CHIPS = 60;

/** @param {Moment} now */
function model(now) {
  const { engine = {}, requests = {}, counters = {} } = now.state;
  const arriving = Object.keys(requests).filter((id) => requests[id].status === "submitted");
  return {
    mode: words.modeText(engine),
    next: engine.next_phase ?? "–",
    flight: Object.entries(engine.in_flight ?? {}).map(([step, phase]) => `${step} (${phase})`),
    arriving,
    tokens: counters.generation_tokens ?? 0,
  };
}

class FrontEndRoom {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.store = store;
    this.root = root;
    this.facts = el("dl", { class: "gb-facts" });
    this.arriving = el("div", { class: "gb-chips gb-arriving" });
    this.size = truth("derived", words.ARRIVING_HOW);
    this.streams = new Streams(store, ROW, words.streamNote, false);
    const caption = (/** @type {string} */ name, /** @type {...Node} */ ...rest) =>
      el("div", { class: "gb-room-caption" }, el("h3", { text: name }), ...rest);
    root.append(
      this.facts,
      el("div", { class: "gb-arrivals" }, caption(words.ARRIVING, this.size), this.arriving),
      caption(words.STREAMS, this.streams.open, this.streams.more),
      this.streams.element,
    );
  }

  destroy() {
    this.streams.destroy();
  }

  /** @param {Moment} now */
  update(now) {
    const data = model(now);
    this.drawFacts(data);
    this.drawArriving(data.arriving);
    this.streams.update(now);
  }

  /** @param {ReturnType<typeof model>} data */
  drawFacts({ mode, next, flight, tokens }) {
    /** @type {[string, string, string][]} */
    const rows = [
      [words.LOOP, mode, words.LOOP_HOW],
      [words.NEXT_PHASE, next, words.NEXT_PHASE_HOW],
      [words.GENERATED, count(tokens), words.GENERATED_HOW],
    ];
    if (flight.length) rows.push([words.IN_FLIGHT, flight.join(", "), words.IN_FLIGHT_HOW]);
    reconcile(
      this.facts,
      rows,
      ([name]) => name,
      ([name]) => el("div", {}, el("dt", { text: name }), el("dd", {}, truth("measured", ""))),
      (node, [, value, how]) =>
        setTruth(node.lastElementChild.firstElementChild, "measured", how, value),
    );
  }

  /** @param {string[]} arriving */
  drawArriving(arriving) {
    setTruth(this.size, "derived", words.ARRIVING_HOW, count(arriving.length));
    const theme = themeOf(this.root);
    reconcile(
      this.arriving,
      arriving.slice(0, MOST_CHIPS),
      (id) => id,
      (id) =>
        el("button", {
          class: "gb-sampled-chip",
          type: "button",
          "data-request": id,
          text: id,
          onclick: () => this.store.select({ request: id }),
        }),
      (node, id) => {
        node.style.setProperty("--hue", requestColour(id, theme));
        setAttribute(node, "aria-pressed", String(this.store.selection.request === id));
      },
    );
  }
}

/** @param {HTMLElement} root @param {Store} store */
export function mount(root, store) {
  return new FrontEndRoom(root, store);
}
