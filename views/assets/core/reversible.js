// @ts-check
/**
 * A state that is changed in place, value by value, so that the latest changes can be taken back.
 * Its queues are linked through their members, as the engine's are (engine/linked_queue.py).
 *
 * @typedef {"free" | "waiting" | "running"} QueueName
 */

import { BareMap } from "./state.js";

export class Reversible {
  /** @param {any} state */
  constructor(state) {
    this.state = state;
    /** @type {any[]} object, key and value before, of each change, one after the other */
    this.before = [];
  }

  /** How many changes there are to take back. */
  get changes() {
    return this.before.length / 3;
  }

  /** @param {number} changes that stay */
  undoTo(changes) {
    const { before } = this;
    while (before.length > 3 * changes) {
      const value = before.pop();
      const key = before.pop();
      put(before.pop(), key, value);
    }
  }

  /** @param {any} object of the state @param {string|number} key @param {any} value null: none */
  set(object, key, value) {
    this.before.push(object, key, object[key]);
    put(object, key, value);
  }

  /** @param {any} object @param {string|number} key @param {number} [by] */
  add(object, key, by = 1) {
    this.set(object, key, (object[key] ?? 0) + by);
  }

  /** @param {any} object @param {string} key @returns {any} the map there, made if need be */
  map(object, key) {
    if (object[key] === undefined) this.set(object, key, new BareMap());
    return object[key];
  }

  /** @param {string} id @returns {any} a request's record; an empty one where there is none */
  request(id) {
    return this.state.requests?.[id] ?? {};
  }

  /** @param {number} id @returns {any} */
  block(id) {
    return this.state.blocks?.[id] ?? {};
  }

  /** @param {string} name @param {number} [by] */
  count(name, by) {
    this.add(this.map(this.state, "counters"), name, by);
  }

  // -- queues ------------------------------------------------------------------------------------

  /** @param {QueueName} name */
  queue(name) {
    return this.map(this.map(this.state, "queues"), name);
  }

  /** @param {QueueName} name @param {string|number} id @returns {any} a member's record */
  member(name, id) {
    return (name === "free" ? this.state.blocks : this.state.requests)?.[id];
  }

  /** @param {QueueName} name @param {number} place @returns {any} undefined behind the last one */
  memberAt(name, place) {
    const { head, length = 0 } = this.queue(name);
    let id = place < length ? head : undefined;
    for (let k = 0; k < place && id !== undefined; k += 1) id = this.member(name, id)?.next;
    return id;
  }

  /** Whether it is in this queue, or in another one of its kind. @param {QueueName} name
   * @param {string|number} id */
  isIn(name, id) {
    const { prev, next } = this.member(name, id) ?? {};
    return prev !== undefined || next !== undefined || this.queue(name).head === id;
  }

  /** Take a member out, wherever it stands. @param {QueueName} name @param {string|number} id */
  unlink(name, id) {
    if (!this.isIn(name, id)) return;
    const member = this.member(name, id);
    const { prev, next } = member;
    this.join(name, prev, next);
    this.set(member, "prev", null);
    this.set(member, "next", null);
    this.add(this.queue(name), "length", -1);
  }

  /**
   * Put one in before a member; without it at the end.
   * @param {QueueName} name @param {string|number} id @param {string|number} [before]
   */
  link(name, id, before) {
    if (!this.member(name, id) || this.isIn(name, id)) return;
    const prev = before === undefined ? this.queue(name).tail : this.member(name, before)?.prev;
    this.join(name, prev, id);
    this.join(name, id, before);
    this.add(this.queue(name), "length");
  }

  /**
   * Make two members neighbours; undefined stands for what is beyond an end.
   * @param {QueueName} name @param {string|number|undefined} prev
   * @param {string|number|undefined} next
   */
  join(name, prev, next) {
    const first = prev === undefined ? this.queue(name) : this.member(name, prev);
    const second = next === undefined ? this.queue(name) : this.member(name, next);
    if (first) this.set(first, prev === undefined ? "head" : "next", next);
    if (second) this.set(second, next === undefined ? "tail" : "prev", prev);
  }
}

/** @param {any} object @param {string|number} key @param {any} value */
function put(object, key, value) {
  if (value === null || value === undefined) delete object[key];
  else object[key] = value;
}
