// @ts-check
/** What stands where nothing is to be seen yet: why that is, and what to do for it. */

/** @import { Store } from "../core/store.js" */

/**
 * Up to the cursor no request has come.
 * @param {Pick<Store, "live" | "engine" | "atHead">} store
 */
export function nobodyAsked({ live, engine, atHead }) {
  if (!live && atHead) return "This saved trace has no request in it.";
  if (!live || !atHead)
    return "Nobody has asked anything yet at this moment: press Phase to go on from it.";
  return engine === "shared"
    ? "Nobody has asked the shared engine anything yet: Connect says how a client does."
    : "Nobody has asked anything yet. Send a prompt, or take a preset, then press Phase.";
}

/**
 * That, or what is said once somebody has asked.
 * @param {Pick<Store, "live" | "engine" | "atHead">} store @param {any} state at the cursor
 * @param {string} text
 */
export function orNobodyAsked(store, state, text) {
  return Object.keys(state?.requests ?? {}).length ? text : nobodyAsked(store);
}

/** There is no log to draw. @param {{stage?: string}|null|undefined} status of the model */
export function noLog(status) {
  if (!status) return "The engine's log is on its way.";
  return status.stage === "failed"
    ? "There is no engine to look into: its model could not be loaded. The page says above what " +
        "to mend; a saved trace can be opened all the same."
    : "There is no engine to look into yet: its model is being made ready. The map can be read, " +
        "and a saved trace opened, meanwhile.";
}
