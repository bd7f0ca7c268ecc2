// @ts-check
/**
 * What moves on the map: events that the cursor just passed travel their arrows, in a picture of
 * their own that lies over it, since whatever moves in a picture has all of it painted anew.
 */
import { QUICK_MS } from "../core/clock.js";
import { svg } from "../page/dom.js";
import { READS } from "./packets.js";
import { round } from "./shapes.js";

/** @import { ArchitectureMap } from "./map.js" */

const FLIGHT_MS = 430;
const MOST_FLIGHTS = 6;

export class Motion {
  /** @param {ArchitectureMap} map */
  constructor(map) {
    this.map = map;
    /** @type {{line: any, back: boolean, began: number, node: SVGElement}[]} */
    this.flights = [];
    this.frame = 0;
    this.viewport = svg("g");
    this.sky = svg("svg", { class: "gb-sky", "aria-hidden": "true" }, this.viewport);
  }

  /** Another picture lies below. @param {string} viewBox of it */
  begin(viewBox) {
    this.sky.setAttribute("viewBox", viewBox);
    this.viewport.replaceChildren();
  }

  stop() {
    cancelAnimationFrame(this.frame);
  }

  /**
   * Let the events that the cursor just passed travel: a few a frame, never behind.
   * @param {any} now @param {number} lastCursor where it came from; Infinity: another log
   */
  fly(now, lastCursor) {
    const { store } = this.map;
    const forward = store.cursor > lastCursor;
    if (!forward || this.map.reduced.matches) return;
    const entry = store.stepAt(store.cursor);
    const from = Math.max(lastCursor + 1, entry?.first ?? 0, store.cursor - 400);
    const passed = new Map();
    for (const event of store.eventsBetween(from, store.cursor)) {
      passed.set(event.connection ?? `at ${event.component}`, event);
    }
    const last = [...passed.values()].slice(-MOST_FLIGHTS);
    // A glow takes a layer of its own in the map, and outlasts what follows so soon.
    const quick = store.clock.walking && store.clock.stepMs < QUICK_MS;
    for (const event of last) {
      const lines = this.map.linesByLive.get(event.connection ?? "");
      if (lines) for (const line of lines) this.launch(line, READS.has(event.type));
      else if (!quick && (event === now || last.length <= 2))
        this.pulse(this.map.boxByLive.get(event.component));
    }
  }

  /** @param {any} line @param {boolean} back against the arrow */
  launch(line, back) {
    if (this.flights.some((flight) => flight.line === line)) return;
    if (this.flights.length >= MOST_FLIGHTS * 2) return;
    const node = svg("circle", { class: "gb-flight", r: 5 });
    this.viewport.append(node);
    this.flights.push({ line, back, began: performance.now(), node });
    if (!this.frame) this.frame = requestAnimationFrame((time) => this.tick(time));
  }

  /** @param {number} time */
  tick(time) {
    this.frame = 0;
    this.flights = this.flights.filter((flight) => {
      const part = Math.max(0, Math.min(1, (time - flight.began) / FLIGHT_MS));
      if (part >= 1 || !flight.node.isConnected) {
        flight.node.remove();
        return false;
      }
      const eased = part < 0.5 ? 2 * part * part : 1 - (2 - 2 * part) ** 2 / 2;
      const way = flight.back ? 1 - eased : eased;
      const { x, y } = flight.line.track.getPointAtLength(way * flight.line.length);
      flight.node.setAttribute("transform", `translate(${round(x)} ${round(y)})`);
      return true;
    });
    if (this.flights.length) this.frame = requestAnimationFrame((next) => this.tick(next));
  }

  /** @param {any} box */
  pulse(box) {
    if (!box || box.glow?.playState === "running") return;
    const fade = [{ opacity: 0.9 }, { opacity: 0 }];
    box.glow = box.pulse.animate(fade, { duration: 480, easing: "ease-out" });
  }
}
