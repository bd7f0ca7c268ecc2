// @ts-check
/**
 * What is scrolled out of sight. While the cursor walks, nobody sees that it is not brought up to
 * date; as soon as it comes into sight, or the cursor stands, it is drawn as everything else.
 */

/** @import { Store } from "../core/store.js" */

/** @type {WeakSet<Element>} */
const outOfSight = new WeakSet();

const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries)
    outOfSight[isIntersecting ? "delete" : "add"](target);
});

/** Have an eye on an element from now on. @template {Element} T @param {T} element @returns {T} */
export function watched(element) {
  observer.observe(element);
  return element;
}

/**
 * Whether a watched element need not be drawn now.
 * @param {Store} store @param {Element} element
 */
export function isUnseen(store, element) {
  return store.clock.walking && isOutOfSight(element);
}

/** Whether a watched element was out of sight in the latest frame. @param {Element} element */
export function isOutOfSight(element) {
  return outOfSight.has(element);
}
