// @ts-check
/** What is said where a live engine is saved as a file, and goes on from one. */
import { bytes, plural } from "./format.js";

/** @import { KeptMoment } from "../core/stream.js" */

export const MOMENT = {
  label: "Live engine (.moment.safetensors)",
  about: "The engine itself between two steps: Open goes on from it, here or elsewhere.",
  /** @param {KeptMoment} kept */
  saved: (kept) =>
    `The engine is saved as it stands before step ${kept.step} (${bytes(kept.num_bytes)}). ` +
    "R brings it back to here.",
  /** @param {string} why */
  failed: (why) => `The engine could not be saved: ${why}`,
  noEngine: "There is no engine yet.",
  finish: "Finish the step and save",
  runs: "The engine runs, and it is saved between two steps: it would pause behind this one.",
  /** @param {number} step @param {string} next */
  midStep: (step, next) =>
    `Step ${step} is under way, ${next} comes next, and an engine is saved between two steps.`,
  /** @param {string} file @param {string} why */
  refused: (file, why) => `${file} is not restored: ${why}. The engine is as it was.`,
  back: "Back to the saved engine",
  /** @param {KeptMoment} kept */
  backTitle: (kept) =>
    `Bring the engine back to where it was saved, before step ${kept.step} (R). What it has done ` +
    "since is lost, its log too",
  none: "No engine is saved to go back to: Save, Live engine does that.",
  /** @param {any} facts of moment_restored @param {number} step */
  restored: (facts, step) => {
    const clients = facts.num_requests
      ? ` No client waits for its ${plural(facts.num_requests, "request")}: their texts come ` +
        "here alone."
      : "";
    const packages = facts.other_versions.length
      ? ` It was saved with other packages (${facts.other_versions.join(", ")}): what it writes ` +
        "may differ."
      : "";
    return (
      `This engine goes on from a saved one, before step ${step}; what stood here is gone, and R ` +
      `comes back to this.${clients}${packages}`
    );
  },
};
