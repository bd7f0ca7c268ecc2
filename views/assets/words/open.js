// @ts-check
/** What is said where files are opened: those of this machine, and the server's saved traces. */
import { bytes, count } from "./format.js";

/** @import { FileKind, SavedTrace } from "../core/stream.js" */

export const OPEN = {
  name: "Open",
  title: "Open a saved trace, or go on from a saved engine",
  dialog: "What to open",
  file: "A file …",
  fileAbout: "A saved trace (.jsonl), or a saved live engine (.moment.safetensors).",
  folder: "Saved traces of this server",
  search: "Search the saved traces",
  asking: "Asking the server …",
  notConnected: "the page is not connected to the server",
  empty:
    "The server's folder of traces has none yet. Save a trace (Save, Trace) and have the file " +
    "put there: it is listed at once, for everybody.",
  notOffered:
    "This server offers none. Started with TRACES=FOLDER, it lists the .jsonl files of that " +
    "folder here, and links lead into them.",
  noneFound: "None of them is called like that.",
  /** @param {number} n */
  leftOut: (n) => `${count(n)} older ones are not listed; a link still opens them.`,
  /** @param {string} why */
  failed: (why) => `They cannot be listed: ${why}.`,
  link: "Link",
  /** @param {string} path */
  copy: (path) => `Copy a link to ${path}`,
  copied: "The link is copied.",
  byHand: "Copy this link by hand; the browser does not let the page do it here:",
  /** @param {string} file @param {FileKind} kind */
  other: (file, { what, where }) => `${file} is ${what}, and no saved trace. ${where}`.trim(),
  asDocument: "Draw it",
};

const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/** @param {SavedTrace} trace */
export function traceAbout(trace) {
  const { written, problem, model, step, num_records: records } = trace;
  const file = [bytes(trace.num_bytes), DATE.format(written * 1000)];
  if (problem) return `Not opened: ${problem} · ${file.join(" · ")}`;
  const log = [];
  if (model) log.push(model);
  if (step !== null) log.push(`up to step ${count(step)}`);
  if (records !== null) log.push(`${count(records)} records`);
  return [...log, ...file].join(" · ");
}
