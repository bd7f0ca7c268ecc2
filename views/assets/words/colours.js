// @ts-check
/** The colours of requests: stable by order of arrival, legible in both themes. */

/* Ten hues in an order that keeps neighbours apart. Orange is missing: it is the engine's. */
const LIGHT = [
  "#2158d8",
  "#b3185b",
  "#0b7350",
  "#7430d6",
  "#8a5a00",
  "#0b6f93",
  "#b4232a",
  "#55730a",
  "#a21caf",
  "#475a7a",
];
const DARK = [
  "#6ea8ff",
  "#f683b8",
  "#3fd69b",
  "#b196ff",
  "#e9c14a",
  "#4cc9ee",
  "#ff8f8f",
  "#a9d850",
  "#ec8bf5",
  "#a9b9d6",
];

/** @type {Map<string, number>} */
const order = new Map();

/**
 * Say in which order requests arrived. A request's hue follows from it and never changes.
 * @param {Iterable<string>} ids
 * @param {boolean} [afresh] another trace begins
 */
export function registerRequests(ids, afresh = false) {
  if (afresh) order.clear();
  for (const id of ids) if (!order.has(id)) order.set(id, order.size);
}

/**
 * The colour of a request: legible as text on a panel, and under `onRequestColour` as a fill.
 * @param {number | string} id its id, or its place in the order of arrival
 * @param {string} [theme] "light" or "dark"
 * @returns {string}
 */
export function requestColour(id, theme = "light") {
  if (typeof id === "string" && !order.has(id)) registerRequests([id]);
  const place = typeof id === "number" ? id : /** @type {number} */ (order.get(id));
  const hues = theme === "dark" ? DARK : LIGHT;
  return hues[place % hues.length];
}

/**
 * How often the colours had been given away before this request got its own: they tell ten apart.
 * @param {string | undefined} id @returns {number}
 */
export function requestLap(id) {
  if (id === undefined || order.size <= LIGHT.length) return 0;
  return Math.floor((order.get(id) ?? 0) / LIGHT.length);
}

/** The colour of text on a fill of a request's colour. @param {string} [theme] @returns {string} */
export function onRequestColour(theme = "light") {
  return theme === "dark" ? "#0a101c" : "#ffffff";
}
