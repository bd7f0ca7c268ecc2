// @ts-check
/** What is said where a log leaves the page, or a link leads into it. */

/** @import { LogFormat } from "../core/stream.js" */

export const SAVE = {
  title: "Save the log that is shown as a file",
  /** @type {Record<LogFormat, {label: string, about: string}>} */
  forms: {
    jsonl: {
      label: "Trace (.jsonl)",
      about: "All of it, with your bookmarks. Open shows it again, without an engine.",
    },
    perfetto: {
      label: "Perfetto (.perfetto-trace)",
      about: "For ui.perfetto.dev: steps, phases and requests over time.",
    },
    csv: {
      label: "Tables (.csv.zip)",
      about: "For a spreadsheet: a row for each step, a row for each request.",
    },
  },
  /** @param {string} why */
  failed: (why) => `The log could not be saved: ${why}`,
};

export const LINK = {
  name: "Copy a link to this moment",
  title: "Copy a link to this moment: view, box, request, step and record",
  copied: "The link is copied. It leads to this view, selection and moment, and holds no key.",
  liveLog:
    " Your engine's log is in this tab alone: whoever gets the link needs it as a file (Save, " +
    "Trace).",
  /** @param {string} file */
  savedLog: (file) => ` Whoever gets it needs the file ${file}, too.`,
  byHand: "Copy this link by hand; the browser does not let the page do it here:",
  /** @param {string} part */
  odd: (part) => `“${part}” says nothing here`,
  /** @param {string} view */
  noView: (view) => `this map has no view “${view}”`,
  /** @param {string} box */
  noBox: (box) => `this map has no box “${box}”`,
  /** @param {string} box */
  noRoom: (box) => `there is no inside of a box “${box}” to show`,
  /** @param {string} request */
  noRequest: (request) => `this log has no request “${request}”`,
  /** @param {number} block */
  noBlock: (block) => `this log has no block ${block}`,
  noMoment: "this log does not have that moment (it ends before it, or has folded it up)",
  /** @param {string} path */
  otherFile: (path) => `the server's file ${path} is another log than the link was made of`,
  /** @param {string} path @param {string} why */
  noFile: (path, why) => `the server's file ${path} cannot be shown: ${why}`,
  /** @param {string[]} problems */
  leftOut: (problems) => {
    const first = problems.slice(0, 4).join("; ");
    const more = problems.length > 4 ? `; and ${problems.length - 4} more` : "";
    return `Part of the link was left out: ${first}${more}.`;
  },
  /** @param {string} trace @param {string|null} file */
  awaits: (trace, file) =>
    file
      ? `This link leads into the saved trace ${file} (log ${trace}). Open that file, and its ` +
        "moment is shown."
      : `This link leads into the log ${trace}, which is another engine's or has ended. Where it ` +
        "was saved as a file, open that, and its moment is shown.",
};
