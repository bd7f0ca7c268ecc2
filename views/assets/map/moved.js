// @ts-check
/**
 * What moved in the step on show, as a table: each event that crossed a connection of the map, in
 * the order in which it happened, which way, and how much. For those who do not see the map it is
 * always there; a button brings it into sight.
 */
import { el, icon, reconcile, setAttribute, setText } from "../page/dom.js";
import { Pace, READ_MS, Rest } from "../page/pace.js";
import { bytes, count } from "../words/format.js";
import * as words from "../words/moved.js";
import { READS, quantityOf } from "./packets.js";

/** @import { EventRecord } from "../core/records.js" */
/** @import { Connection } from "../core/document.js" */
/** @import { Store } from "../core/store.js" */
/** @import { Amounts } from "../words/moved.js" */

/**
 * @typedef {{seq: number, connection: string, from: string, to: string, what: string,
 *   quantity: string, amounts: Amounts, now: boolean}} Crossing
 */

const MOST = 120; // rows; those before are counted
const LIST = "M2 3h2v2H2zM6 3h8v2H6zM2 7h2v2H2zM6 7h8v2H6zM2 11h2v2H2zM6 11h8v2H6z";

/**
 * The crossings of some events. A box is named as the document does, and a connection that it has
 * not is none: which is which, the server's binding table says (views/document/bindings.py).
 * @param {Store} store @param {EventRecord[]} events @returns {Crossing[]}
 */
function crossingsOf(store, events) {
  const { components, connections } = store.document;
  const names = new Map(components.map((item) => [item.id, item.label]));
  /** @type {Map<string|null, Connection[]>} several where a document has stops between */
  const ways = new Map();
  for (const line of connections) ways.set(line.live, [...(ways.get(line.live) ?? []), line]);
  const at = store.records[store.cursor];
  return events.flatMap((event) => {
    const lines = event.connection === null ? undefined : ways.get(event.connection);
    return lines ? [crossing(event, lines, names, event === at)] : [];
  });
}

/**
 * @param {EventRecord} event @param {Connection[]} lines @param {Map<string, string>} names
 * @param {boolean} now @returns {Crossing}
 */
function crossing(event, lines, names, now) {
  const first = lines.find(({ from }) => !lines.some(({ to }) => to === from)) ?? lines[0];
  const last = lines.find(({ to }) => !lines.some(({ from }) => from === to)) ?? lines[0];
  const ends = [names.get(first.from) ?? first.from, names.get(last.to) ?? last.to];
  if (READS.has(event.type)) ends.reverse();
  return {
    seq: event.seq,
    connection: event.connection ?? "",
    from: ends[0],
    to: ends[1],
    what: first.label ?? "",
    quantity: quantityOf([event]),
    amounts: words.amountsOf(event),
    now,
  };
}

export class MovedTable {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.shown = false;
    this.body = el("tbody");
    this.none = el("p", { class: "gb-moved-none", text: words.NOTHING_MOVED });
    this.before = el("p", { class: "gb-moved-none" });
    const head = words.MOVED_COLUMNS.map((name) => el("th", { scope: "col", text: name }));
    const table = el(
      "table",
      {},
      el("caption", { text: words.MOVED, title: words.AMOUNTS_HOW }),
      el("thead", {}, el("tr", {}, ...head)),
      this.body,
    );
    this.element = el(
      "section",
      { class: "gb-crossings gb-sr", "aria-label": words.MOVED, tabindex: -1 },
      this.before,
      table,
      this.none,
    );
    /** @type {HTMLElement[]} */
    this.toggles = [];
    this.drawn = "";
    this.pace = new Pace(store, () => this.draw(), READ_MS);
    this.rest = new Rest(() => this.draw());
  }

  destroy() {
    this.pace.stop();
    this.rest.stop();
  }

  /** A button that brings the table into sight, and takes it away again. */
  toggle() {
    const button = el(
      "button",
      {
        class: "gb-button gb-moved-toggle",
        type: "button",
        title: words.MOVED_HINT,
        "aria-label": words.MOVED,
        "aria-expanded": "false",
        onclick: () => this.show(!this.shown),
      },
      icon(LIST),
    );
    this.toggles.push(button);
    return button;
  }

  /** @param {boolean} shown */
  show(shown) {
    this.shown = shown;
    this.element.classList.toggle("gb-sr", !shown);
    setAttribute(this.element, "tabindex", shown ? "0" : "-1");
    for (const button of this.toggles) setAttribute(button, "aria-expanded", String(shown));
    if (shown) this.draw();
  }

  update() {
    if (this.shown) this.pace.update();
    else this.rest.update();
  }

  draw() {
    const { store } = this;
    const { header, cursor, records } = store;
    const key = `${header?.trace_id} ${header?.base_seq} ${records.length} ${cursor}`;
    if (key === this.drawn || !store.document) return;
    this.drawn = key;
    const entry = header ? store.entryOnShow() : null;
    const all = entry ? crossingsOf(store, store.eventsOfStep(entry)) : [];
    const rows = all.slice(-MOST);
    this.none.hidden = rows.length > 0;
    setText(this.before, all.length > rows.length ? words.earlier(all.length - rows.length) : "");
    reconcile(
      this.body,
      rows,
      (row) => `${header.trace_id} ${row.seq}`,
      (row) => this.makeRow(row),
      (node, row) => setAttribute(node, "aria-current", row.now ? "true" : null),
    );
    const last = this.body.querySelector("[aria-current]");
    if (this.shown && last instanceof HTMLElement) keepInSight(this.element, last);
  }

  /** @param {Crossing} row */
  makeRow({ seq, from, to, what, quantity, amounts }) {
    const { store } = this;
    const jump = el("button", {
      class: "gb-crossing-seq",
      type: "button",
      text: String(seq),
      onclick: () => store.jump(seq - (store.header?.base_seq ?? 0)),
    });
    const number = (/** @type {number|undefined} */ n) =>
      el("td", { class: "is-number", text: n === undefined ? "" : count(n) });
    const size = amounts.bytes === undefined ? "" : bytes(amounts.bytes);
    return el(
      "tr",
      { "data-seq": seq },
      el("th", { scope: "row" }, jump),
      el("td", { text: from }),
      el("td", { text: to }),
      el("td", {}, what, el("span", { class: "gb-crossing-quantity", text: quantity })),
      number(amounts.requests),
      number(amounts.tokens),
      number(amounts.blocks),
      el("td", { class: "is-number", text: size }),
    );
  }
}

/** @param {HTMLElement} area that scrolls @param {HTMLElement} row */
function keepInSight(area, row) {
  const top = row.offsetTop;
  if (top < area.scrollTop + 40 || top + row.offsetHeight > area.scrollTop + area.clientHeight)
    area.scrollTop = top - area.clientHeight / 2;
}
