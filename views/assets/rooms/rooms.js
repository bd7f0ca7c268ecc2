// @ts-check
/**
 * Which room a box has, by the engine's name of it: one module each, which draws the inside from
 * the state and the events at the cursor.
 *
 * @typedef {{update: (now: Moment) => void, destroy: () => void, waits?: boolean}} Room `waits`: it
 *   has not drawn what is new yet, and asks to be brought up to date again
 */
import * as attention from "./attention.js";
import * as blocks from "./blocks.js";
import * as clients from "./clients.js";
import * as frontEnd from "./front_end.js";
import * as graphs from "./graphs.js";
import * as heads from "./heads.js";
import * as memory from "./memory.js";
import * as runner from "./runner.js";
import * as scheduler from "./scheduler.js";

/** @import { Moment } from "../boxes/moment.js" */
/** @import { Store } from "../core/store.js" */

/** @type {Record<string, (root: HTMLElement, store: Store) => Room>} */
const ROOMS = {
  "client-req": clients.mount,
  "async-engine": frontEnd.mount,
  scheduler: scheduler.mount,
  "block-manager": blocks.mount,
  "gpu-runner": runner.mount,
  "cuda-graph": graphs.mount,
  "paged-attn": attention.mount,
  "physical-vram": memory.mount,
  "shared-gqa": heads.mount,
};

/** @param {string|null} name @param {HTMLElement} root @param {Store} store @returns {Room|null} */
export function mountRoom(name, root, store) {
  const mount = name !== null && Object.hasOwn(ROOMS, name) ? ROOMS[name] : null;
  return mount ? mount(root, store) : null;
}
