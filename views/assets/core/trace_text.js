// @ts-check
/** A log as the text of a trace file: what is shown; what the server sent, with bookmarks in it. */

/** @import { Bookmark } from "./bookmarks.js" */
/** @import { Store } from "./store.js" */

const TYPE = "application/jsonl";
const NEWLINE = 10; // as a byte

/** What the page shows, as a file. @param {Store} store @returns {Blob} */
export function shownTrace(store) {
  const lines = [headerLine(store.header, store.bookmarks.list)];
  for (const record of store.records) lines.push(JSON.stringify(record));
  return new Blob([lines.join("\n"), "\n"], { type: TYPE });
}

/**
 * A file of the server's with bookmarks in its header; the records are not even read.
 * @param {Blob} file @param {Bookmark[]} bookmarks @returns {Promise<Blob>}
 */
export async function withBookmarks(file, bookmarks) {
  if (!bookmarks.length) return file;
  const reader = file.stream().getReader();
  const bytes = [];
  let end = -1;
  let before = 0;
  while (end < 0) {
    const { value, done } = await reader.read();
    if (done) return file;
    const place = value.indexOf(NEWLINE);
    if (place >= 0) end = before + place;
    before += value.length;
    bytes.push(value);
  }
  await reader.cancel();
  const header = await new Blob(bytes).slice(0, end).text();
  const line = headerLine(JSON.parse(header), bookmarks);
  return new Blob([line, file.slice(end)], { type: TYPE });
}

/** @param {any} header @param {Bookmark[]} bookmarks */
function headerLine(header, bookmarks) {
  return JSON.stringify({ ...header, kind: "header", bookmarks });
}
