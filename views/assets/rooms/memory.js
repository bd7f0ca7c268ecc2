// @ts-check
/**
 * The device memory's inside, to scale: weights, activations, graph buffers and the KV cache; below
 * it the KV cache alone, as it is used now, and what this step read and wrote.
 */
import { poolUse } from "../core/pool.js";
import { el, reconcile, setAttribute, svg } from "../page/dom.js";
import { setTruth, truth } from "../page/truth.js";
import { bytes, count, percent } from "../words/format.js";
import { memoryParts } from "../words/memory.js";
import * as words from "../words/rooms.js";

/** @import { Moment } from "../boxes/moment.js" */
/** @import { Store } from "../core/store.js" */
/** @import { TruthKind } from "../page/truth.js" */

const LEAST_NAMED = 0.09; // a part with a smaller share has its name in the list alone

/** @typedef {{name: string, size: number, text: string, truth: TruthKind, how: string}} Part */

/** @param {Store} store @param {Moment} now */
export function model(store, now) {
  const first = store.cursor >= 0 ? store.records[0] : undefined;
  const sized = first?.kind === "event" && first.type === "memory_sized" ? first.facts : null;
  const whole = sized
    ? memoryParts(sized, now.state.graphs)
    : words.memoryOfHeader(now.model, now.config);
  /** @type {Part[]} */
  const parts = whole.map((part) => ({
    name: part.name,
    size: part.bytes,
    text: part.bytes === 0 && part.how.startsWith("not") ? "not measured" : bytes(part.bytes),
    truth: part.truth,
    how: part.how,
  }));
  return { parts, pool: poolOf(now), moved: movedOf(now) };
}

/** @typedef {ReturnType<typeof model>} Model */

/** The KV cache's blocks, by what they are. @param {Moment} now @returns {Part[]} */
function poolOf({ state, config }) {
  const { total, free, used } = poolUse(state, config);
  const cached = freeAndCached(state.blocks ?? {}, total + 1);
  /** @type {[string, number, string][]} */
  const parts = [
    ["in use", used, words.USED_BLOCKS_HOW],
    ["free, cached", cached, words.CACHED_BLOCKS_HOW],
    ["free, empty", Math.max(0, free - cached), words.EMPTY_BLOCKS_HOW],
  ];
  return parts.map(([name, size, how]) => ({
    name,
    size,
    text: total ? `${count(size)} · ${percent(size / total)}` : count(size),
    truth: "derived",
    how,
  }));
}

/** @param {any} blocks @param {number} size */
function freeAndCached(blocks, size) {
  let n = 0;
  for (let id = 1; id < size; id += 1) {
    const block = blocks[id];
    if (block && block.hash && block.ref_cnt === 0) n += 1;
  }
  return n;
}

/** @param {Moment} now @returns {Part[]} */
function movedOf(now) {
  const sum = (/** @type {string} */ type) =>
    now.all(type).reduce((all, event) => all + event.facts.num_bytes, 0);
  return [
    ["weights read", "weights_read"],
    ["KV pages read", "pages_read"],
    ["KV written", "kv_written"],
  ].map(([name, type]) => ({
    name,
    size: sum(type),
    text: now.all(type).length ? bytes(sum(type)) : words.NOT_YET_SHORT,
    truth: /** @type {TruthKind} */ ("derived"),
    how: words.movedHow(type),
  }));
}

class MemoryRoom {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.store = store;
    this.whole = new Bar("gb-memory-whole");
    this.lens = svg("svg", {
      class: "gb-memory-lens",
      viewBox: "0 0 100 10",
      preserveAspectRatio: "none",
      "aria-hidden": "true",
    });
    this.beam = svg("polygon");
    this.lens.append(this.beam);
    this.pool = new Bar("gb-memory-pool");
    this.moved = el("dl", { class: "gb-moved" });
    root.append(
      el("h3", { text: words.MEMORY }),
      this.whole.element,
      this.lens,
      el("h3", { text: words.POOL }),
      this.pool.element,
      el("h3", { text: words.MOVED }),
      this.moved,
    );
  }

  destroy() {}

  /** @param {Moment} now */
  update(now) {
    const { parts, pool, moved } = model(this.store, now);
    const { from, to } = this.whole.update(parts, "KV cache");
    const points = `${from * 100},0 ${to * 100},0 100,10 0,10`;
    setAttribute(this.beam, "points", points);
    this.pool.update(pool, "");
    const most = Math.max(1, ...moved.map((part) => part.size));
    reconcile(
      this.moved,
      moved,
      (part) => part.name,
      (part) =>
        el(
          "div",
          { "data-part": part.name },
          el("dt", { text: part.name }),
          el("dd", {}, el("i", { "aria-hidden": "true" }), truth(part.truth, part.how)),
        ),
      (node, part) => {
        const [bar, figure] = node.lastElementChild.children;
        const width = `${(part.size / most) * 100}%`;
        if (bar.style.width !== width) bar.style.width = width;
        setTruth(figure, part.truth, part.how, part.text);
      },
    );
  }
}

/** Parts of a whole, to scale, each with its name and size below. */
class Bar {
  /** @param {string} name */
  constructor(name) {
    this.bar = el("div", { class: "gb-scale", "aria-hidden": "true" });
    this.list = el("dl", { class: "gb-scale-parts" });
    this.element = el("div", { class: name }, this.bar, this.list);
  }

  /**
   * @param {Part[]} parts @param {string} wanted a part whose place is asked for
   * @returns {{from: number, to: number}} that place, as shares of the whole
   */
  update(parts, wanted) {
    const sum = parts.reduce((before, part) => before + part.size, 0);
    const all = Math.max(1, sum);
    let before = 0;
    let place = { from: 0, to: 1 };
    for (const part of parts) {
      if (part.name === wanted) place = { from: before / all, to: (before + part.size) / all };
      before += part.size;
    }
    reconcile(
      this.bar,
      parts,
      (part) => part.name,
      (part) => el("i", { "data-part": part.name }, el("span", { text: part.name })),
      (node, part) => {
        const width = `${(part.size / all) * 100}%`;
        if (node.style.width !== width) node.style.width = width;
        setAttribute(node, "data-size", String(part.size));
        node.firstElementChild.hidden = part.size / all < LEAST_NAMED;
      },
    );
    reconcile(
      this.list,
      parts,
      (part) => part.name,
      (part) =>
        el(
          "div",
          {},
          el("dt", {}, el("i", { "data-part": part.name, "aria-hidden": "true" }), part.name),
          el("dd", {}, truth(part.truth, part.how)),
        ),
      (node, part) =>
        setTruth(node.lastElementChild.firstElementChild, part.truth, part.how, part.text),
    );
    return place;
  }
}

/** @param {HTMLElement} root @param {Store} store */
export function mount(root, store) {
  return new MemoryRoom(root, store);
}
