// @ts-check
/**
 * The browser's history of this page. Another place (a view, a document, a room, another log, the
 * end of a leap) is an entry of its own; what is stepped, played or scrubbed through only replaces
 * the one there is. Streamlit makes an entry by itself where the query changes.
 */

const OURS = "glassbox";

export class Visits {
  /** @param {() => string|null} here the place as a fragment; null: it is not to be told now */
  constructor(here) {
    this.here = here;
    this.pushing = 0;
    this.repeats = false;
    this.onKey = (/** @type {KeyboardEvent} */ event) => (this.repeats = event.repeat);
    this.onDown = () => {
      this.repeats = false;
      this.replace();
    };
  }

  /** @returns {() => void} what ends it */
  listen() {
    addEventListener("keydown", this.onKey, true);
    addEventListener("pointerdown", this.onDown, true);
    return () => {
      removeEventListener("keydown", this.onKey, true);
      removeEventListener("pointerdown", this.onDown, true);
      clearTimeout(this.pushing);
      this.pushing = 0;
    };
  }

  /** Have the entry that there is say where the page is. */
  replace() {
    this.put("replaceState");
  }

  /**
   * The page goes elsewhere in this turn of the browser's: where it is now is what the way back
   * leads to, and whatever else the same gesture moves belongs to the same entry. So does what a
   * key moves that is held down, and what comes with an entry that Streamlit has just made.
   */
  leave() {
    if (this.pushing || this.repeats || !isOurs(history.state) || this.here() === null) return;
    this.replace();
    this.pushing = window.setTimeout(() => {
      this.pushing = 0;
      this.put("pushState");
    });
  }

  /** @param {"replaceState"|"pushState"} how */
  put(how) {
    const fragment = this.here();
    if (this.pushing || fragment === null) return;
    if (location.hash === `#${fragment}` && isOurs(history.state)) return;
    const { pathname, search } = location;
    history[how]({ ...history.state, [OURS]: true }, "", `${pathname}${search}#${fragment}`);
  }
}

/** Whether the page wrote this entry, so that it says all of the place. @param {any} state */
export function isOurs(state) {
  return Boolean(state?.[OURS]);
}
