// @ts-check
/** The mark on a box of which something is often said: the Tab key meets it behind its box. */
import { ask } from "../page/claim_marks.js";
import { svg } from "../page/dom.js";
import { VERDICT_TONES, flagName, flagTitle } from "../words/claims.js";
import { place, round } from "./shapes.js";

/** @import { Area, Component } from "../core/document.js" */

/** @param {Component} item @returns {SVGElement|null} null where there is no claim */
export function makeClaimFlag({ label, claims = [] }) {
  if (!claims.length) return null;
  const said = claims.find((mark) => mark.said && VERDICT_TONES[mark.verdict] !== "ok");
  const numbers = [...new Set(claims.map((mark) => mark.claim))];
  const show = (/** @type {Event} */ event) => {
    event.stopPropagation(); // the box is not chosen, and the engine does not run
    event.preventDefault();
    ask(flag, { numbers, about: label, first: said?.claim ?? numbers[0] });
  };
  const flag = svg(
    "g",
    {
      class: "gb-claim-flag",
      role: "button",
      tabindex: 0,
      "aria-label": flagName(label, numbers.length),
      "data-tone": said ? VERDICT_TONES[said.verdict] : "",
      onclick: show,
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        const isPressed = event.key === "Enter" || event.key === " ";
        if (isPressed && !event.ctrlKey && !event.metaKey && !event.altKey) show(event);
      },
    },
    svg("title", { text: flagTitle(label, claims) }),
    svg("circle", { class: "hit" }),
    svg("circle"),
    svg("text", { "text-anchor": "middle", text: said ? "!" : "?" }),
  );
  return flag;
}

/**
 * On the upper edge of its box, left of what shines there in an event; on a path in the box, left
 * of its sign, and large enough for a finger.
 * @param {SVGElement|null} flag @param {Area} box @param {number} size of its letter
 * @param {number|null} sign how wide a path's sign is
 */
export function placeClaimFlag(flag, { x, y, w, h }, size, sign) {
  if (!flag) return;
  const [right, down] = sign === null ? [22, -size / 3] : [sign + 18, h / 2];
  flag.setAttribute("transform", `translate(${round(x + w - right)} ${round(y + down)})`);
  const [hit, disc] = flag.querySelectorAll("circle");
  hit.setAttribute("r", String(round(sign === null ? size : size * 1.35)));
  disc.setAttribute("r", String(round(size * 0.64)));
  const text = /** @type {SVGElement} */ (flag.querySelector("text"));
  place(text, 0, size * 0.36, size);
}
