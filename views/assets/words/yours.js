// @ts-check
/** What a learner is told of their own requests in the shared engine. */
import { plural } from "./format.js";

export const YOURS = { own: "Yours:", select: "Select this request of yours" };

/** @param {string} id @param {any} request */
export function yoursText(id, request) {
  const output = Object.keys(request.output_token_ids ?? {}).length;
  return `${id} ${request.status}${output ? `, ${plural(output, "token")}` : ""}`;
}
