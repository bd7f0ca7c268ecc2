// @ts-check
/** The page's style sheets, for each shadow root that is drawn with them. */
import { el } from "./dom.js";

const SHEETS = [
  "../base.css",
  "../head.css",
  "../map.css",
  "../inspector.css",
  "../transport.css",
  "../panels.css",
  "../lifecycle.css",
  "../blocks.css",
  "../kernels.css",
  "../rooms.css",
  "../side.css",
  "../tour.css",
];

/**
 * @param {() => void} onReady @param {string[]} [more] that only the asker has
 * @returns {HTMLLinkElement[]}
 */
export function sheets(onReady, more = []) {
  const files = [...SHEETS, ...more];
  let open = files.length;
  const done = () => {
    open -= 1;
    if (!open) onReady();
  };
  return files.map(
    (file) =>
      /** @type {HTMLLinkElement} */ (
        el("link", {
          rel: "stylesheet",
          href: new URL(file, import.meta.url).href,
          onload: done,
          onerror: done,
        })
      ),
  );
}
