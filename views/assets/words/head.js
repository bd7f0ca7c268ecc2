// @ts-check
/** What the row above the map says: its tools, the keys, the files that are opened. */

/** @type {[string[], string][]} */
export const SHORTCUTS = [
  [["Space"], "run or pause"],
  [["→", "←"], "on or back by one event"],
  [["Shift →", "Shift ←"], "on or back by one phase"],
  [["n", "]"], "on by one step"],
  [["p", "["], "back by one step"],
  [["j", "Shift J"], "to the next, the previous moment of the chosen kind"],
  [["b"], "mark this moment, or take its mark away"],
  [["r"], "bring the engine back to where it was saved"],
  [["Home", "End"], "to the start, to the newest record"],
  [["Esc"], "close a list, leave a room, deselect"],
  [["Tab"], "walk the map as a request does, box by box"],
  [["↑ ↓ ← →"], "to the nearest box in that direction"],
  [["Enter"], "select the box; once more: open it"],
  [["+", "-", "0"], "zoom the map, fit it"],
  [["/"], "search lessons, terms, claims and settings"],
  [["f"], "present the lesson that is open: full screen, with a clicker's keys"],
  [["?"], "this list"],
];

export const CHOOSE_VIEW = "choose a view";

export const HEAD = {
  views: "Views",
  engine: "Engine",
  engineTitle: "Whose engine is shown",
  own: "my engine",
  shared: "shared engine",
  file: "Open a saved trace",
  reset: "Reset",
  resetTitle: "Begin again with an empty engine of the same settings",
  keys: "Keyboard",
  keysTitle: "Keyboard shortcuts",
  keysOn: "letters and signs alone are commands",
  /** @param {string} file @param {string} why */
  refused: (file, why) =>
    `${file} cannot be opened: ${why}. What was shown stays. Correct that place, or save the ` +
    "trace again.",
};
