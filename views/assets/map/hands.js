// @ts-check
/** Boxes chosen and opened by hand, by pointer or keys, and what the map says under a pointer. */
import { liveOf } from "../boxes/live.js";
import { moments } from "../boxes/moment.js";
import { eventsUnderWay } from "../core/lanes.js";
import { setText } from "../page/dom.js";
import { eventPhrase } from "../words/events.js";
import { boxText } from "../words/map.js";
import { boxIdOf, centreOf, lineTitle } from "./shapes.js";

/** @import { ArchitectureMap } from "./map.js" */

export class Hands {
  /** @param {ArchitectureMap} map */
  constructor(map) {
    this.map = map;
    this.store = map.store;
    const { stage } = map;
    stage.addEventListener("click", (event) => this.clicked(event));
    stage.addEventListener("keydown", (event) => this.pressed(event));
    stage.addEventListener("pointerover", (event) =>
      this.explain(/** @type {Element} */ (event.target)),
    );
  }

  /** @param {MouseEvent} event */
  clicked(event) {
    if (this.map.gestures.dragged) return;
    const id = boxIdOf(event.target);
    const opener = /** @type {Element} */ (event.target).closest("[data-open]");
    const opened = opener?.getAttribute("data-open") ?? (event.detail === 2 ? id : null);
    if (opened !== null && this.store.canOpen(opened)) {
      this.store.openBox(opened);
      return;
    }
    this.choose(id === this.store.selection.component ? null : id);
    if (this.store.selection.component !== null) this.map.onChosen();
  }

  /** @param {string|null} id */
  choose(id) {
    if (id === null && this.store.selection.component === null) return;
    this.store.select({ component: id, request: null, block: null });
    this.map.showSelection();
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    const id = boxIdOf(event.target);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const again = id !== null && id === this.store.selection.component;
    if (again && event.key === "Enter" && this.store.canOpen(id)) this.store.openBox(id);
    else if (id && (event.key === "Enter" || event.key === " ")) {
      this.choose(id === this.store.selection.component ? null : id);
      if (this.store.selection.component !== null) this.map.onChosen();
    } else if (id && event.key.startsWith("Arrow")) this.goTo(id, event.key);
    else if (!this.map.gestures.key(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Focus the nearest box in a direction. @param {string} id @param {string} key */
  goTo(id, key) {
    const from = centreOf(this.map.boxes.get(id).item);
    const across = key === "ArrowLeft" || key === "ArrowRight";
    const sign = key === "ArrowRight" || key === "ArrowDown" ? 1 : -1;
    let best = null;
    let least = Infinity;
    for (const box of this.map.boxes.values()) {
      const to = centreOf(box.item);
      const along = sign * (across ? to.x - from.x : to.y - from.y);
      const aside = Math.abs(across ? to.y - from.y : to.x - from.x);
      const cost = along + aside * 2.5;
      if (along > 1 && cost < least) [best, least] = [box, cost];
    }
    best?.node.focus();
  }

  /**
   * The browser shows a title after a moment: it is written when the pointer comes.
   * @param {Element|null} node
   */
  explain(node) {
    const box = this.map.boxes.get(
      node?.closest("[data-component]")?.getAttribute("data-component") ?? "",
    );
    if (box) {
      const { live: name } = box.item;
      const live = this.store.header ? liveOf(name, moments(this.store)(name)) : null;
      const rows = (live?.rows ?? []).map(
        (row) => `${row.name}: ${row.value}\n    ${row.truth}: ${row.how}`,
      );
      if (live?.meterHow) rows.push(`bar: ${live.meterHow}\n    derived: the part of the whole`);
      setText(box.hover, [boxText(box.item), ...rows].join("\n"));
      return;
    }
    const id = node?.closest("[data-connection]")?.getAttribute("data-connection");
    const line = this.map.lines.find((each) => each.item.id === id || each.item.live === id);
    if (!line) return;
    const travelled = eventsUnderWay(this.store).filter(
      (event) => event.connection === line.item.live,
    );
    const phrases = travelled.slice(-8).map((event) => `event ${event.seq}: ${eventPhrase(event)}`);
    if (phrases.length) phrases.push("measured: events of this phase in the engine's log");
    setText(line.hover, [lineTitle(line.item, this.map.boxes), ...phrases].join("\n"));
  }
}
