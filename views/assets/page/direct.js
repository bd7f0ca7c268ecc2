// @ts-check
/**
 * The teacher's way to the map of the shared engine: a new tab, whose session has that engine for
 * its own. A tab that is opened from here begins with this one's `sessionStorage`.
 */
import { keepText } from "../core/tab_memory.js";
import { DIRECTOR_KEY, ENGINE_KEY, SESSION_KEY } from "../core/stream.js";
import { DIRECT } from "../words/direct.js";
import { el } from "./dom.js";

/**
 * @param {{data: {key: string}, parentElement: HTMLElement|ShadowRoot}} component
 * @returns {() => void}
 */
export function mount({ data, parentElement }) {
  const open = () => {
    keepText(SESSION_KEY, data.key);
    keepText(DIRECTOR_KEY, data.key);
    keepText(ENGINE_KEY, "own");
    window.open("/", "_blank");
  };
  const button = el("button", { type: "button", text: DIRECT.open, onclick: open });
  button.style.cssText =
    "font: inherit; font-size: 14px; padding: 6px 12px; border-radius: 8px; cursor: pointer;" +
    "color: inherit; background: none; border: 1px solid var(--st-border-color)";
  parentElement.querySelector("button")?.remove(); // mounted again, with other data
  parentElement.append(button);
  return () => button.remove();
}
