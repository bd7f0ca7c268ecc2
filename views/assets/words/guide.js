// @ts-check
/** What the page says where a lesson's link or key leads nowhere just now. */

export const GUIDE = {
  leaveFirst: "The search is above the list of lessons: press Leave first. You can go on with it.",
  noMenu: "The menu Engine cannot be opened just now; open it above the map, and look there.",
  noBox: "That box is not on this map.",
  otherLog: "The map shows another log; choose Show me to come back.",
  endedLog: "That moment is in a log that has ended; bring the engine back first.",
};
