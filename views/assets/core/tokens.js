// @ts-check
/** A request's tokens as text, where their text is known, else as ids. */

/** Whether texts are known: a log without a model has ids alone. @param {any} request */
export function hasTexts(request) {
  return Boolean(request.prompt_pieces);
}

/**
 * @param {any} request its record in the state @param {number} place position in prompt and output
 * @returns {string|undefined} "" while a character is incomplete; undefined where nothing is known
 */
export function pieceAt(request, place) {
  const output = place - (request.num_prompt_tokens ?? 0);
  if (hasTexts(request)) {
    return output < 0 ? request.prompt_pieces[place] : request.output_pieces?.[output];
  }
  const id = output < 0 ? request.prompt_token_ids?.[place] : request.output_token_ids?.[output];
  return id === undefined ? undefined : String(id);
}

/** @param {any} request @param {number} from @param {number} to @returns {string} */
export function textBetween(request, from, to) {
  const words = [];
  for (let place = from; place < to; place += 1) words.push(pieceAt(request, place));
  return words.filter((word) => word !== undefined).join(hasTexts(request) ? "" : " ");
}

/** @param {any} request @returns {string[]} */
export function promptPieces(request) {
  return request.prompt_pieces ?? (request.prompt_token_ids ?? []).map(String);
}

/** @param {any} request @returns {string[]} */
export function outputPieces(request) {
  const first = request.num_prompt_tokens ?? 0;
  return Object.keys(request.output_token_ids ?? {}).map(
    (place) => pieceAt(request, first + Number(place)) ?? "",
  );
}
