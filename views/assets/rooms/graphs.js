// @ts-check
/**
 * The graph runner's inside: the sizes there is a graph for, which are captured, which one this
 * step's batch took, and what fills it up.
 */
import { dispatchOf, sizesOf } from "../panels/graph_model.js";
import { remake } from "../panels/parts.js";
import { el } from "../page/dom.js";
import { truth } from "../page/truth.js";
import { orNobodyAsked } from "../words/empty.js";
import { bytes, count, micros, plural } from "../words/format.js";
import * as words from "../words/rooms.js";

/** @import { Moment } from "../boxes/moment.js" */
/** @import { Store } from "../core/store.js" */
/** @import { SizesView } from "../panels/graph_model.js" */

/** @param {Store} store @param {Moment} now */
export function model(store, now) {
  const event = now.all("step_dispatched").at(-1);
  const dispatch = dispatchOf(event, now.all("batch_scheduled").at(-1));
  const graphs = now.state.graphs ?? {};
  const f = event?.facts;
  const graph = f && f.mode !== "NONE" ? graphs[`${f.mode} ${f.num_padded_tokens}`] : undefined;
  const replay = now.all("graph_replayed").at(-1);
  const captured = now.all("graph_captured").at(-1);
  return {
    sizes: sizesOf(store, event),
    dispatch,
    /** Of the graph taken, once it is captured. */
    graph: graph && {
      replayed: graph.replayed,
      pieces: graph.pieces,
      eagerUs: graph.eager_us,
      replayUs: graph.replay_us,
      bytes: graph.num_bytes,
    },
    ran: replay ? { operations: replay.facts.operations, us: replay.duration_us } : null,
    captured: captured
      ? { size: captured.facts.size, shared: captured.facts.shared, us: captured.duration_us }
      : null,
    device: now.model.device ?? "",
  };
}

/** @typedef {ReturnType<typeof model>} Model */

class GraphsRoom {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.store = store;
    this.said = el("p", { class: "gb-room-said" });
    this.ladders = el("div", { class: "gb-ladders" });
    this.facts = el("dl", { class: "gb-facts" });
    root.append(this.said, this.ladders, this.facts);
  }

  destroy() {}

  /** @param {Moment} now */
  update(now) {
    const data = model(this.store, now);
    const none = orNobodyAsked(this.store, now.state, words.NOT_DISPATCHED);
    remake(this.said, data.dispatch ?? none, saidParts);
    remake(this.ladders, data.sizes, laddersOf);
    remake(this.facts, { ...data, sizes: null }, factsOf);
  }
}

/** How the batch runs, or why there is none. @param {string|NonNullable<Model["dispatch"]>} of */
const saidParts = (of) => (typeof of === "string" ? [of] : words.dispatchParts(of));

/** A column for each size of each mode, as high as it has rows. @param {SizesView} view */
function laddersOf({ modes, fell, largest }) {
  if (!modes.length) return [el("p", { class: "gb-room-none", text: words.NO_GRAPHS })];
  const most = Math.max(largest, 1);
  return modes.map(({ mode, decodeOnly, keys }) =>
    el(
      "section",
      { class: "gb-ladder", "data-mode": mode },
      el(
        "h3",
        {},
        el("code", { text: mode }),
        el("small", { text: decodeOnly ? words.FOR_DECODES : words.FOR_ANY }),
      ),
      el(
        "ol",
        {},
        ...keys.map((key) => {
          const taken = fell?.mode === mode && fell.padded === key.size;
          return rung(key.size, key.size / most, key.captured, taken ? (fell?.tokens ?? 0) : 0);
        }),
      ),
    ),
  );
}

/**
 * @param {number} size @param {number} share of the largest @param {boolean} captured
 * @param {number} tokens of this step's batch; 0: it did not take this one
 */
function rung(size, share, captured, tokens) {
  const bar = el("i", {}, tokens ? el("b", {}) : null);
  bar.style.height = `${Math.max(3, Math.round(Math.sqrt(share) * 1000) / 10)}%`;
  const batch = bar.firstElementChild;
  if (batch instanceof HTMLElement) batch.style.height = `${(tokens / size) * 100}%`;
  const padding = size - tokens;
  const text = tokens && padding ? `${tokens}+${padding}` : "";
  return el(
    "li",
    {
      class: [captured ? "is-captured" : "", tokens ? "is-taken" : ""].join(" ").trim(),
      "data-size": size,
      title: words.rungText(size, captured, tokens),
    },
    el("span", { class: "gb-rung-pad", text }),
    bar,
    el("span", { text: String(size) }),
  );
}

/** What the graph is, and what it cost. @param {Omit<Model, "sizes">} data */
function factsOf({ dispatch, graph, ran, captured, device }) {
  /** @type {[string, HTMLElement][]} */
  const rows = [];
  const measured = (/** @type {string} */ how, /** @type {string} */ text) =>
    truth("measured", how, text);
  if (dispatch) rows.push([words.ROWS, measured("step_dispatched", count(dispatch.tokens))]);
  if (dispatch && !dispatch.eager)
    rows.push([words.PADDING, truth("derived", words.PADDING_HOW, count(dispatch.padding))]);
  if (ran) {
    rows.push([words.OPERATIONS, measured("graph_replayed", count(ran.operations))]);
    if (ran.us !== undefined)
      rows.push([words.REPLAY, measured(words.replayHow(device), micros(ran.us))]);
  }
  if (graph) {
    rows.push([words.PIECES, measured("graph_captured", count(graph.pieces))]);
    rows.push([words.BUFFERS, measured("graph_captured", bytes(graph.bytes))]);
    const times = `${micros(graph.replayUs)} : ${micros(graph.eagerUs)}`;
    rows.push([words.AGAINST_EAGER, measured(words.AGAINST_EAGER_HOW, times)]);
  }
  if (captured)
    rows.push([
      words.CAPTURED,
      measured(
        "graph_captured",
        captured.shared || captured.us === undefined
          ? words.sharedText(captured.size)
          : `${plural(captured.size, "row")}, ${micros(captured.us)}`,
      ),
    ]);
  return rows.map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", {}, value)));
}

/** @param {HTMLElement} root @param {Store} store */
export function mount(root, store) {
  return new GraphsRoom(root, store);
}
