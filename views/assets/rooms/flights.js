// @ts-check
/**
 * Blocks on their way from where they were drawn to where they are now. Each picture says where it
 * puts what; what stands in another queue or table than in the picture before flies there.
 */

const FLIGHT_MS = 340;
const MOST = 32;
const QUICK_MS = 140; // what follows sooner than that is not waited for

/** @typedef {{x: number, y: number, side: number}} Spot */
/** @typedef {{block: number, key: string, from: Spot, to: Spot, began: number}} Flight */

export class Flights {
  /** @param {() => void} paint draws the next picture */
  constructor(paint) {
    this.paint = paint;
    this.reduced = matchMedia("(prefers-reduced-motion: reduce)");
    /** @type {Map<number, {key: string, spot: Spot}>} by block, its first place in the picture */
    this.places = new Map();
    /** @type {Map<number, {key: string, spot: Spot}>} */
    this.before = new Map();
    /** @type {Map<number, Flight>} */
    this.flying = new Map();
    this.changing = false;
    this.began = 0;
    this.frame = 0;
  }

  stop() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
  }

  /** Another moment is about to be drawn. */
  begin() {
    const time = performance.now();
    this.changing = !this.reduced.matches && time - this.began >= QUICK_MS;
    if (!this.changing) this.flying.clear();
    this.began = time;
    this.before = this.places;
    this.places = new Map();
  }

  /** It has been drawn. */
  end() {
    this.changing = false;
    if (this.flying.size && !this.frame) this.frame = requestAnimationFrame(() => this.tick());
  }

  tick() {
    this.frame = 0;
    // Once more when all have come down: they are drawn in their places then.
    const flew = this.flying.size > 0;
    this.paint();
    if (flew) this.frame = requestAnimationFrame(() => this.tick());
  }

  /**
   * Say where a block stands.
   * @param {string} key of the queue or table @param {number} block
   * @param {number} x @param {number} y @param {number} side
   * @returns {boolean} whether it is on its way there: not to be drawn
   */
  passes(key, block, x, y, side) {
    const spot = { x, y, side };
    if (!this.places.has(block)) this.places.set(block, { key, spot });
    const before = this.before.get(block);
    if (this.changing && before && before.key !== key && !this.flying.has(block)) {
      if (this.flying.size < MOST && this.places.get(block)?.key === key)
        this.flying.set(block, { block, key, from: before.spot, to: spot, began: this.began });
    }
    const flight = this.flying.get(block);
    if (flight?.key !== key) return false;
    flight.to = spot;
    return true;
  }

  /** @param {(block: number, x: number, y: number, side: number) => void} draw */
  draw(draw) {
    const time = performance.now();
    for (const flight of this.flying.values()) {
      const { from, to, block } = flight;
      const part = Math.min(1, Math.max(0, (time - flight.began) / FLIGHT_MS));
      const eased = 1 - (1 - part) ** 3;
      const at = (/** @type {"x" | "y" | "side"} */ name) =>
        from[name] + (to[name] - from[name]) * eased;
      draw(block, at("x"), at("y"), at("side"));
      if (part >= 1) this.flying.delete(block);
    }
  }
}
