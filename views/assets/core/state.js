// @ts-check
/**
 * The state at any record of the log: JSON Merge Patches (RFC 7386) forwards, their inverses
 * backwards. The page has no logic of its own here: what is drawn is what the engine wrote.
 */

/** A far jump copies a checkpoint instead of walking; a copy costs about this many records. */
const COPY_COST = 600;
const CHECKPOINT_EVERY = 5000;
const MAX_CHECKPOINTS = 32;

/**
 * A map that inherits nothing, so that an id such as `__proto__` is an id like any other. Browsers
 * make and copy these several times as fast as what `Object.create(null)` gives.
 */
export class BareMap {}
Reflect.deleteProperty(BareMap.prototype, "constructor");
Object.setPrototypeOf(BareMap.prototype, null);

/** @param {any} value @returns {boolean} */
function isMap(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Merge `changes` into `state` in place and return the patch that undoes it. Lists are assigned
 * whole and never changed, so they may be shared.
 * @param {any} state
 * @param {any} changes
 * @returns {any}
 */
export function mergePatch(state, changes) {
  /** @type {any} */
  const inverse = new BareMap();
  for (const key of Object.keys(changes)) {
    const value = changes[key];
    const before = state[key];
    const known = before !== undefined;
    if (value === null) {
      if (known) {
        inverse[key] = before;
        delete state[key];
      }
    } else if (isMap(value)) {
      if (isMap(before)) inverse[key] = mergePatch(before, value);
      else {
        inverse[key] = known ? before : null;
        mergePatch((state[key] = new BareMap()), value);
      }
    } else {
      inverse[key] = known ? before : null;
      state[key] = value;
    }
  }
  return inverse;
}

/** @param {any} state @returns {any} */
export function copyState(state) {
  /** @type {any} */
  const copy = new BareMap();
  for (const key in state) {
    const value = state[key];
    if (value !== null) copy[key] = isMap(value) ? copyState(value) : value;
  }
  return copy;
}

/** The state at one record of a list that only grows; it can be moved to any other record. */
export class Timeline {
  /**
   * @param {any} base the state before the first record
   * @param {any[]} records
   * @param {{every?: number, copyCost?: number}} [tuning] for tests, whose logs are short
   */
  constructor(base, records, { every = CHECKPOINT_EVERY, copyCost = COPY_COST } = {}) {
    this.records = records;
    this.every = every;
    this.copyCost = copyCost;
    this.index = -1;
    this.state = copyState(base);
    /** @type {any[]} the patch that undoes record i, once it has been applied */
    this.inverses = [];
    this.checkpoints = [{ index: -1, state: copyState(base) }];
  }

  /** @param {number} target index of the record whose state is wanted; -1: before the first */
  moveTo(target) {
    const start = this.nearest(target);
    const walk = Math.abs(target - this.index);
    if (target - start.index + this.copyCost < walk) {
      this.state = copyState(start.state);
      this.index = start.index;
    }
    while (this.index > target) this.back();
    while (this.index < target) this.forward();
    return this.state;
  }

  forward() {
    this.index += 1;
    const record = this.records[this.index];
    if (record.kind === "patch") this.inverses[this.index] = mergePatch(this.state, record.changes);
    const last = this.checkpoints[this.checkpoints.length - 1];
    if (this.index - last.index >= this.every) this.remember();
  }

  back() {
    if (this.records[this.index].kind === "patch")
      mergePatch(this.state, this.inverses[this.index]);
    this.index -= 1;
  }

  remember() {
    this.checkpoints.push({ index: this.index, state: copyState(this.state) });
    if (this.checkpoints.length > MAX_CHECKPOINTS) {
      this.checkpoints = this.checkpoints.filter((_, i) => i === 0 || i % 2 === 0);
    }
  }

  /** @param {number} target */
  nearest(target) {
    let best = this.checkpoints[0];
    for (const checkpoint of this.checkpoints) {
      if (checkpoint.index <= target) best = checkpoint;
    }
    return best;
  }
}
