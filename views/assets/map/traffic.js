// @ts-check
/** What travels the map's arrows at the cursor, and at which boxes something happens. */
import { PHASE_BOXES, eventsUnderWay, lanesAt } from "../core/lanes.js";
import { reconcile, setAttribute, setText, svg } from "../page/dom.js";
import { packetsOf } from "./packets.js";
import { round } from "./shapes.js";

/** @import { ArchitectureMap } from "./map.js" */
/** @import { Packet } from "./packets.js" */

const NOWHERE = -2;

export class Traffic {
  /** @param {ArchitectureMap} map */
  constructor(map) {
    this.map = map;
    this.layer = svg("g", { class: "gb-packets" });
    /** What it was drawn of: the cursor's place, in which log, with which letters. */
    this.cursor = NOWHERE;
    this.header = /** @type {any} */ (null);
    this.layout = -1;
  }

  /** Another document is drawn: what travelled before is none of it. */
  forget() {
    this.cursor = NOWHERE;
  }

  update() {
    const { store, text, linesByLive, motion } = this.map;
    const moved = store.cursor !== this.cursor || store.header !== this.header;
    if (!moved && this.layout === text.layouts) return;
    if (this.layout !== text.layouts) this.layer.replaceChildren();
    this.layout = text.layouts;
    const record = store.records[store.cursor];
    const now = record?.kind === "event" ? record : null;
    const events = eventsUnderWay(store);
    const packets = packetsOf(events, now).filter((packet) =>
      linesByLive.has(packet.connection),
    );
    this.showPackets(packets);
    this.showSparks(events, now);
    if (moved) motion.fly(now, store.header === this.header ? this.cursor : Infinity);
    this.cursor = store.cursor;
    this.header = store.header;
  }

  /** @param {Packet[]} packets */
  showPackets(packets) {
    const lit = new Map(packets.map((packet) => [packet.connection, packet]));
    for (const line of this.map.lines) {
      const packet = lit.get(line.item.live);
      line.node.classList.toggle("is-lit", packet !== undefined);
      line.node.classList.toggle("is-now", packet?.now === true);
      line.name.classList.toggle("is-lit", packet !== undefined);
      setText(line.quantity, packet?.quantity ?? "");
    }
    const spots = packets.flatMap((packet) =>
      (this.map.linesByLive.get(packet.connection) ?? []).map((line) => ({ packet, line })),
    );
    reconcile(
      this.layer,
      spots,
      ({ packet, line }) => `${line.item.id} ${packet.back}`,
      ({ packet, line }) => this.makePacket(packet, line),
      (node, { packet }) => {
        setAttribute(node, "data-events", packet.events.map((event) => event.seq).join(" "));
        setAttribute(node, "data-quantity", packet.quantity);
        node.classList.toggle("is-now", packet.now);
        setAttribute(node.querySelector(".halo"), "r", packet.now ? "10" : "0");
        setAttribute(node.querySelector(".core"), "r", packet.now ? "5.5" : "4");
      },
    );
  }

  /** @param {Packet} packet rests near the end that it goes to, or midway @param {any} line */
  makePacket(packet, line) {
    const far = Math.max(line.length - 15, line.length * 0.75);
    const end = packet.back ? line.length - far : far;
    const rest = this.map.reduced.matches ? line.length / 2 : end;
    const { x, y } = line.track.getPointAtLength(rest);
    return svg(
      "g",
      {
        class: "gb-packet",
        "pointer-events": "none",
        "data-connection": packet.connection,
        transform: `translate(${round(x)} ${round(y)})`,
      },
      svg("circle", { class: "halo", r: 0 }),
      svg("circle", { class: "core", r: 4 }),
    );
  }

  /**
   * Boxes at which events of this phase happened, and the one that the other thread is at.
   * @param {any[]} events @param {any} now
   */
  showSparks(events, now) {
    const touched = new Set();
    for (const event of events) touched.add(event.component);
    const meanwhile = PHASE_BOXES[lanesAt(this.map.store)?.other?.phase ?? ""];
    for (const [name, box] of this.map.boxByLive) {
      box.node.classList.toggle("is-meanwhile", name === meanwhile);
      setAttribute(box.spark, "visibility", touched.has(name) ? null : "hidden");
      box.node.classList.toggle("is-now", now !== null && now.component === name);
      box.node.classList.toggle("is-busy", touched.has(name) || name === meanwhile);
    }
  }
}
