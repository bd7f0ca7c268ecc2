// @ts-check
/** What banners say: whose log this is, what failed, what can be done. */
import { shortened } from "./format.js";

export const BANNERS = {
  close: "Close",
  closeTitle: "Close this message",
  open: "Open…",
  backToLive: "Back to live",
  reset: "Reset the engine",
  forgotten:
    "The server knows this tab no more, as after a restart: its engine is gone, with the " +
    "requests and the log. What you send now goes to a new one.",
  directsNoMore:
    "The teacher's pass that this tab had has ended, so it directs the class's engine no more. " +
    "That engine goes on; what you see and send to here is a new one of this tab's own.",
  /** @param {string} part of the page @param {string} message */
  fault: (part, message) => `The ${part} could not draw a part of this log (${message}).`,
};

/**
 * A saved trace is on show; where it was recorded beside another map, that is said as well.
 * @param {string} name @param {string} [recorded] title of its document @param {string} [shown]
 * @param {boolean} [isBroken] whether its engine was broken on purpose
 */
export function savedText(name, recorded, shown, isBroken) {
  const broken = isBroken ? " The one that wrote it was broken on purpose, for a lesson." : "";
  const text = `Saved trace ${name}: no engine stands behind it.${broken}`;
  if (!recorded || recorded === shown) return text;
  return (
    `${text} It was recorded under another document, “${shortened(recorded, 80)}”: what ` +
    "happened at boxes that this map has not is in the panels alone."
  );
}

/** @param {string} message of the engine, which may or may not be a sentence already */
export function failureText(message) {
  const stopped = message.startsWith("the engine stopped");
  const text = stopped ? `T${message.slice(1)}` : `The engine failed: ${message}`;
  const sentence = text.endsWith(".") ? text : `${text}.`;
  return `${sentence} Its log is kept; a reset begins a new one.`;
}
