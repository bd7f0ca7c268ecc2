// @ts-check
/** A request's logical block table. */
import { el, reconcile, setAttribute, setText } from "../page/dom.js";
import { setTruth } from "../page/truth.js";
import { requestColour } from "../words/colours.js";
import { NO_TABLE } from "../words/blocks.js";
import { UNCOMPUTED } from "../words/events.js";
import { plural, visible } from "../words/format.js";
import { OUTLINES, fillWords } from "./blocks_words.js";

/** @import { Store } from "../core/store.js" */
/** @import { LogicalBlock, Model, Pool } from "./blocks_model.js" */

export class LogicalTable {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.whose = el("span");
    this.size = el("span");
    this.title = el("h3", { class: "gbp-title" }, this.whose, this.size);
    this.body = el("tbody");
    this.table = /** @type {HTMLTableElement} */ (
      el(
        "table",
        { class: "gbp-logical" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            ...["logical", "tokens", "content", "fill", "block"].map((name) =>
              el("th", { scope: "col", text: name }),
            ),
          ),
        ),
        this.body,
      )
    );
    this.scroll = el("div", { class: "gbp-logical-scroll" }, this.table);
    this.note = el("p", { class: "gbp-more" });
    this.element = el(
      "section",
      { class: "gbp-section gbp-table" },
      this.title,
      this.scroll,
      this.note,
    );
  }

  /** @param {Model} model @param {string} theme */
  update(model, theme) {
    const { request, pool } = model;
    this.scroll.hidden = !request || request.held === 0;
    if (!request) {
      setText(this.whose, "Block table");
      setText(this.size, "");
      this.plainNote(NO_TABLE);
      return;
    }
    this.element.style.setProperty("--gbp-hue", requestColour(request.id, theme));
    setText(this.whose, `Block table of ${request.id} (${request.status}): `);
    const size = plural(request.held, "block");
    setTruth(this.size, "measured", "length of block_table in the request's record", size);
    const before = request.left > 0 ? `${plural(request.left, "block")} before these` : "";
    const how = `length of block_table - the ${request.blocks.length} shown`;
    if (before) setTruth(this.note, "derived", how, before);
    else this.plainNote(request.held === 0 ? this.emptyWords(request) : "");
    this.note.hidden = this.note.textContent === "";
    reconcile(
      this.body,
      request.blocks,
      (item) => String(item.logical),
      () => this.row(),
      (row, item) => this.fillRow(row, item, pool),
    );
  }

  /** @param {string} text */
  plainNote(text) {
    this.note.className = "gbp-more";
    this.note.removeAttribute("title");
    this.note.removeAttribute("data-truth");
    setText(this.note, text);
  }

  /** @param {{id: string, status: string}} request */
  emptyWords(request) {
    return request.status === "finished"
      ? `${request.id} is finished and has let go of its blocks.`
      : `${request.id} is ${request.status} and holds no blocks.`;
  }

  row() {
    const button = el("button", { type: "button", class: "gbp-to" });
    const row = el(
      "tr",
      {},
      el("th", { scope: "row" }),
      el("td", { class: "gbp-range" }),
      el("td", { class: "gbp-content" }),
      el("td", {}, el(
          "span",
          { class: "gbp-fill" },
          el("i"),
          el("i", { class: "is-next" }),
          el("i", { class: "is-stale" }),
        )),
      el("td", {}, button),
    );
    row.addEventListener("click", () => this.store.select({ block: Number(button.dataset.block) }));
    return row;
  }

  /** @param {any} row @param {LogicalBlock} item @param {Pool} pool */
  fillRow(row, item, pool) {
    const chosen = this.store.selection?.block === item.block;
    const { block: id, to, fill: full, scheduled, stale, refs, hash, uncomputed, touch } = item;
    const { length } = item.text;
    const shown = [id, to, full, scheduled, stale, refs, hash, uncomputed, length, touch, chosen];
    const key = shown.join(" ");
    if (row.__shown === key) return;
    row.__shown = key;
    const [logical, range, content, fill, block] = row.children;
    setText(logical, `L${item.logical}`);
    setText(range, item.to > item.from ? `${item.from}–${item.to - 1}` : `${item.from}–`);
    setText(content, visible(item.text));
    content.title = item.text;
    const [done, next, old] = fill.firstChild.children;
    done.style.width = `${(full / pool.blockSize) * 100}%`;
    next.style.width = `${(scheduled / pool.blockSize) * 100}%`;
    old.style.width = `${(stale / pool.blockSize) * 100}%`;
    const formula = `num_computed_tokens - ${item.logical} × ${pool.blockSize}`;
    fill.title = `derived: ${fillWords(item, pool.blockSize)}; ${formula}`;
    const button = block.firstChild;
    button.dataset.block = String(id);
    setText(button, refs > 1 ? `${id} ×${refs}` : String(id));
    const held = refs > 1 ? `, held by ${refs} requests` : "";
    const known = hash ? `hash ${hash}` : "no hash yet";
    const wrong = uncomputed ? `; ${UNCOMPUTED}` : "";
    button.title = `measured: physical block ${id}${held}, ${known}${wrong}`;
    setAttribute(row, "data-touch", OUTLINES.find(([bit]) => item.touch & bit)?.[1] ?? null);
    row.classList.toggle("is-hashed", item.hash !== "");
    row.classList.toggle("is-uncomputed", uncomputed);
    row.classList.toggle("is-selected", chosen);
  }

  /**
   * Where the lines of the rows in view begin, relative to `frame`.
   * @param {DOMRect} frame @returns {{place: number, x: number, y: number}[]}
   */
  anchors(frame) {
    const view = this.scroll.getBoundingClientRect();
    const head = this.table.tHead?.getBoundingClientRect().height ?? 0;
    const anchors = [];
    for (let place = 0; place < this.body.children.length; place += 1) {
      const edge = this.body.children[place].getBoundingClientRect();
      const y = edge.top + edge.height / 2;
      if (y < view.top + head || y > view.bottom) continue;
      anchors.push({ place, x: view.right - frame.left, y: y - frame.top });
    }
    return anchors;
  }
}
