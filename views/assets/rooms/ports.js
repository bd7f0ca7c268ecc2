// @ts-check
/**
 * The edges of a room: the boxes that it is connected with, and what travels between, as on the
 * map. A press on a neighbour goes into its room.
 */
import { packetsOf } from "../map/packets.js";
import { el, reconcile, setAttribute, setText } from "../page/dom.js";
import { openText } from "../words/rooms.js";

/** @import { Component, Connection } from "../core/document.js" */
/** @import { EventRecord } from "../core/records.js" */
/** @import { Store } from "../core/store.js" */
/** @import { Packet } from "../map/packets.js" */

const DOT_MS = 420;

/** @typedef {{connection: Connection, other: Component}} Port */

export class Ports {
  /** @param {Store} store @param {"in" | "out"} side @param {string} name for those who listen */
  constructor(store, side, name) {
    this.store = store;
    this.side = side;
    this.element = el("ul", { class: `gb-ports is-${side}`, "aria-label": name });
    this.reduced = matchMedia("(prefers-reduced-motion: reduce)");
    /** @type {Map<string, string>} by connection, the events that were drawn last */
    this.shown = new Map();
  }

  /** @param {string} id of the box whose room is open */
  build(id) {
    const { components, connections } = this.store.document;
    const ports = connections
      .filter((line) => (this.side === "in" ? line.to : line.from) === id)
      .map((connection) => {
        const end = this.side === "in" ? connection.from : connection.to;
        const other = /** @type {Component} */ (components.find((item) => item.id === end));
        return { connection, other };
      });
    reconcile(
      this.element,
      ports,
      ({ connection }) => connection.id,
      (port) => this.makePort(port),
    );
    this.shown.clear();
  }

  /** @param {Port} port */
  makePort({ connection, other }) {
    const open = el(
      "button",
      {
        class: "gb-port-box",
        type: "button",
        "data-type": other.type,
        title: other.live ? openText(other.label) : other.label,
        "aria-label": openText(other.label),
        onclick: () => this.store.openBox(other.id),
      },
      other.label,
    );
    if (!other.live) setAttribute(open, "disabled", "");
    return el(
      "li",
      { class: "gb-port", "data-connection": connection.live ?? connection.id },
      open,
      el(
        "span",
        { class: "gb-port-way" },
        el("span", { class: "gb-port-name", text: connection.label ?? "" }),
        el("i", { class: "gb-port-line", "aria-hidden": "true" }, el("b", {})),
        el("span", { class: "gb-port-amount" }),
      ),
    );
  }

  /** @param {EventRecord[]} events under way @param {EventRecord|null} now */
  update(events, now) {
    const packets = new Map(packetsOf(events, now).map((packet) => [packet.connection, packet]));
    for (const node of this.element.children) {
      const name = node.getAttribute("data-connection") ?? "";
      const packet = packets.get(name);
      node.classList.toggle("is-lit", packet !== undefined);
      node.classList.toggle("is-now", packet?.now === true);
      const amount = /** @type {Element} */ (node.querySelector(".gb-port-amount"));
      setText(amount, packet?.quantity ?? "");
      this.travel(node, name, packet);
    }
  }

  /**
   * A dot runs along the line when something new has travelled it.
   * @param {Element} node @param {string} name @param {Packet} [packet]
   */
  travel(node, name, packet) {
    const seqs = packet ? packet.events.map((event) => event.seq).join(" ") : "";
    const before = this.shown.get(name);
    this.shown.set(name, seqs);
    if (!packet || before === undefined || seqs === before || !seqs.startsWith(before)) return;
    if (this.reduced.matches) return;
    const dot = /** @type {HTMLElement} */ (node.querySelector(".gb-port-line b"));
    // The dot is at the end of what moves; where `left` moved it, the page would be laid out anew.
    const ends = ["translateX(-100%)", "none"];
    const [from, to] = packet.back ? ends.reverse() : ends;
    dot.animate(
      [
        { transform: from, opacity: 1 },
        { transform: to, opacity: 1, offset: 0.85 },
        { transform: to, opacity: 0 },
      ],
      { duration: DOT_MS, easing: "ease-in-out" },
    );
  }
}
