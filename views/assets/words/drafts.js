// @ts-check
/** Drafts in words: what one is, and what figures of them mean. */
import { percent } from "./format.js";

/** @import { Draft } from "../core/speculation.js" */

export const DRAFT_RATE_HOW =
  "drafts_verified events of the log: the sum of num_accepted ÷ the number of drafts";
export const MEAN_LENGTH_HOW =
  "1 + accepted drafts ÷ steps that verified some: a step brings a token even where all are " +
  "rejected";

/** @type {Record<Draft["verdict"], string>} */
const VERDICTS = {
  pending: "the next step's forward computes it, and then it is accepted or rejected",
  accepted: "accepted: it is what the model chooses at this place",
  rejected: "rejected: the model chooses another token here, which is kept in its place",
  unjudged:
    "void: it stands behind a rejected draft, so what the model says here counts for nothing",
};

/** @param {Draft} draft @returns {string} */
export function draftHow({ id, position, verdict, model, chance }) {
  if (id < 0) return `position ${position}: padding, which is never accepted`;
  const likely = model === undefined ? "" : `; to the model its probability is ${percent(model)}`;
  const drawn = chance === undefined ? "" : `, and it was to be accepted by ${percent(chance)}`;
  return `measured: draft ${id} for position ${position}, ${VERDICTS[verdict]}${likely}${drawn}`;
}
