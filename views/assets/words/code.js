// @ts-check
/** What the code beside an event says: of the place, of the versions, of the values. */

export const CODE_TITLE = "The function of this engine that an event came from";
export const CODE_LINK = "The code of the latest event here";
export const CODE = {
  goTo: "Go to this event",
  copy: "Copy",
  copyTitle: "Copy what is shown",
  openFile: "Open file",
  functionOnly: "Function only",
  decided: "Decided: ",
  logged: "Logged: ",
  /** @param {string} path */
  allOf: (path) => `All of ${path}`,
  readNext: "Read next in vLLM 0.26.0: ",
};
export const WAITS = "Reading the engine's source …";
export const NO_EVENT =
  "No event yet. Step the engine, and the function that each event came from stands here.";
export const NOTHING_HERE = "Nothing has happened here up to the cursor.";
export const NO_SITE =
  "Several lines make such an event, and the part of the log that tells which of them is gone.";
export const NOTHING_LIKE_IT = "vLLM 0.26.0 has nothing like it.";
export const COPIED = "Copied";
export const SELECTED = "Selected; copy with Ctrl+C";

/** @param {string} logged "" where the log does not say @param {string} here */
export function otherVersion(logged, here) {
  const whose = logged
    ? `The engine that wrote this log had another source (${logged}; here is ${here})`
    : "This log does not say which source its engine had";
  return `${whose}. Which line it was cannot be told, and none is shown.`;
}

/** @param {string} of @param {string} name @param {number} seq */
export function valueHow(of, name, seq) {
  if (of === "config") return `config.${name} in the log's header`;
  return of === "reason" ? `${name} of event ${seq}'s reason` : `${name} of event ${seq}`;
}

const MOST_LETTERS = 24;
const MOST_ITEMS = 3;

/** A value as Python would print it, cut short. @param {any} value @returns {string} */
export function valueText(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") return String(value);
  if (typeof value === "string") return quoted(value);
  if (!Array.isArray(value)) return "…";
  const shown = value.length > MOST_ITEMS + 1 ? value.slice(0, MOST_ITEMS) : value;
  const items = shown.map((item) => (Array.isArray(item) ? "…" : valueText(item)));
  if (shown.length < value.length) items.push(`… ${value.length} items`);
  return `(${items.join(", ")}${value.length === 1 ? "," : ""})`;
}

/** @param {string} text */
function quoted(text) {
  const letters = [...JSON.stringify(text).slice(1, -1)];
  const cut = letters.length > MOST_LETTERS ? `${letters.slice(0, MOST_LETTERS).join("")}…` : "";
  return `"${cut || letters.join("")}"`;
}
