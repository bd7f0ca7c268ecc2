// @ts-check
/** What the page says while the engine is at something that takes longer than a step. */

/** @import { Doing } from "../core/stream.js" */

/** @param {Doing} doing */
export function doingText({ text }) {
  return `The engine is ${text}. It goes on by itself.`;
}

/** Why a button that commands it does nothing now. @param {Doing|null} doing */
export function busyText(doing) {
  return doing ? doingText(doing) : "The engine is at work on the last command.";
}
