// @ts-check
/**
 * Small checks of values out of a file, put together to the shape that is expected. A check returns
 * "" or what is wrong, with the place of it: `requests.r0.num_tokens must be a whole number`.
 *
 * @typedef {(value: any, place: string) => string} Check
 */

const DEEPEST = 16; // levels of what no check knows
const LARGEST = Number.MAX_SAFE_INTEGER;

/** @param {any} value @returns {boolean} */
export function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** @param {(value: any) => boolean} holds @param {string} what @returns {Check} */
function simple(holds, what) {
  return (value, place) => (holds(value) ? "" : `${place} must be ${what}`);
}

export const text = simple((value) => typeof value === "string", "a text");
export const flag = simple((value) => typeof value === "boolean", "true or false");
export const number = simple(
  (value) => typeof value === "number" && Math.abs(value) <= LARGEST,
  "a number",
);

/** @param {number} low @param {number} [high] @returns {Check} */
export function whole(low, high = LARGEST) {
  const what =
    high === LARGEST
      ? `a whole number from ${low} on`
      : `a whole number from ${low} to ${high.toLocaleString("en-US")}`;
  return simple((value) => Number.isInteger(value) && value >= low && value <= high, what);
}

/** @param {...string} words @returns {Check} */
export function oneOf(...words) {
  return simple((value) => words.includes(value), `one of ${words.join(", ")}`);
}

/** @param {Check} item @param {number} [most] items @returns {Check} */
export function listOf(item, most = Infinity) {
  return (value, place) => {
    if (!Array.isArray(value)) return `${place} must be a list`;
    if (value.length > most) return `${place} has ${value.length} items; ${most} at most`;
    return first(value, (each, i) => item(each, `${place}[${i}]`));
  };
}

/**
 * An object whose keys are data. Null takes an entry away, as in every patch.
 * @param {Check} key @param {Check} item @returns {Check}
 */
export function mapOf(key, item) {
  return (value, place) => {
    if (!isObject(value)) return `${place} must be an object`;
    return first(Object.keys(value), (name) => {
      const here = `${place}.${short(name)}`;
      return key(name, here) || (value[name] === null ? "" : item(value[name], here));
    });
  };
}

/**
 * An object of these fields, each of which may be missing or null; of others the page knows nothing
 * and needs only that they end.
 * @param {Record<string, Check>} fields @returns {Check}
 */
export function shape(fields) {
  return (value, place) => {
    if (!isObject(value)) return `${place} must be an object`;
    return first(Object.keys(value), (name) => {
      if (value[name] === null) return "";
      const here = place ? `${place}.${short(name)}` : short(name);
      const check = Object.hasOwn(fields, name) ? fields[name] : anything;
      return check(value[name], here);
    });
  };
}

/** A key that counts: "0", "1", "2". @type {Check} */
export const index = simple((name) => /^(0|[1-9]\d{0,8})$/.test(name), "named by a whole number");

/** @type {Check} */
export const anyKey = () => "";

/** @type {Check} */
export const anything = (value, place) =>
  isShallow(value, DEEPEST) ? "" : `${place} is nested more than ${DEEPEST} levels deep`;

/** @param {any} value @param {number} levels @returns {boolean} */
function isShallow(value, levels) {
  if (typeof value !== "object" || value === null) return true;
  return levels > 0 && Object.values(value).every((each) => isShallow(each, levels - 1));
}

/**
 * What is wrong with the first item that is wrong.
 * @template T
 * @param {T[]} items @param {(item: T, i: number) => string} check
 */
function first(items, check) {
  for (let i = 0; i < items.length; i += 1) {
    const problem = check(items[i], i);
    if (problem) return problem;
  }
  return "";
}

/** @param {string} name */
function short(name) {
  return name.length > 40 ? `${name.slice(0, 39)}…` : name;
}
