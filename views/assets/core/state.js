// @ts-check
/**
 * The state at any record of the log: JSON Merge Patches (RFC 7386) merged one after the other. The
 * page has no logic of its own here: what is drawn is what the engine wrote.
 */

/**
 * A jump begins at a checkpoint and walks on from there. More of them are less to walk, but each
 * costs a copy of the state's largest map, its blocks.
 */
const CHECKPOINT_EVERY = 1000;

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
 * Merge `changes` into `state` in place. Lists are assigned whole and never changed, so they may be
 * shared.
 * @param {any} state
 * @param {any} changes
 * @param {Set<object>} [own] the maps inside it that may be changed, too; the first change of
 *   another one goes into a copy, which is added. Without it all may be.
 */
export function mergePatch(state, changes, own) {
  for (const key of Object.keys(changes)) {
    const value = changes[key];
    if (value === null) delete state[key];
    else if (isMap(value)) mergePatch(ownMap(state, key, own), value, own);
    else state[key] = value;
  }
}

/**
 * @param {any} state @param {string} key @param {Set<object>} [own]
 * @returns {any} the map there, as one that may be changed
 */
function ownMap(state, key, own) {
  const map = state[key];
  const known = isMap(map);
  if (known && (!own || own.has(map))) return map;
  const copy = known ? shallowCopy(map) : new BareMap();
  own?.add(copy);
  return (state[key] = copy);
}

/** @param {any} map @returns {any} */
function shallowCopy(map) {
  /** @type {any} */
  const copy = new BareMap();
  for (const key in map) copy[key] = map[key];
  return copy;
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

/**
 * The state at one record of a list that only grows; it can be moved to any other record.
 *
 * A checkpoint is the state as it was at its record. What has not changed since is the same object
 * in both, so that many checkpoints take little memory and going back to one takes little time.
 */
export class Timeline {
  /**
   * @param {any} base the state before the first record
   * @param {any[]} records
   * @param {number} [every] so many records is a checkpoint; for tests, whose logs are short
   */
  constructor(base, records, every = CHECKPOINT_EVERY) {
    this.records = records;
    this.every = every;
    this.checkpoints = [{ index: -1, state: copyState(base) }];
    this.index = -1;
    this.state = shallowCopy(this.checkpoints[0].state);
    /** Maps of the state that no checkpoint has. @type {Set<object>} */
    this.own = new Set();
  }

  /** @param {number} target index of the record whose state is wanted; -1: before the first */
  moveTo(target) {
    const near = this.nearest(target);
    if (target < this.index || near.index > this.index) this.begin(near);
    while (this.index < target) this.forward();
    return this.state;
  }

  forward() {
    this.index += 1;
    const record = this.records[this.index];
    if (record.kind === "patch") mergePatch(this.state, record.changes, this.own);
    const last = this.checkpoints[this.checkpoints.length - 1];
    if (this.index - last.index < this.every) return;
    const checkpoint = { index: this.index, state: this.state };
    this.checkpoints.push(checkpoint);
    this.begin(checkpoint);
  }

  /** Go on from a checkpoint, which keeps its state. @param {{index: number, state: any}} from */
  begin({ index, state }) {
    this.index = index;
    this.state = shallowCopy(state);
    this.own = new Set();
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
