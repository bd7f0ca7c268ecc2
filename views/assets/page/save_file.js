// @ts-check
import { el } from "./dom.js";

const KEPT_MS = 10_000;

/** Have the browser save a file. @param {Blob} blob @param {string} name */
export function saveFile(blob, name) {
  const href = URL.createObjectURL(blob);
  el("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), KEPT_MS);
}
