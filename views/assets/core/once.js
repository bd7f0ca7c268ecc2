// @ts-check
/**
 * What is made when it is first asked for, and kept.
 * @template T
 * @param {() => T} make @returns {() => T}
 */
export function once(make) {
  /** @type {{value: T}|null} */
  let made = null;
  return () => (made ??= { value: make() }).value;
}
