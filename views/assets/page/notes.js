// @ts-check
/**
 * The window of the presenter's notes: it follows the page that opened it, whose id its address
 * has, and passes a clicker's keys on.
 */
import { TOUR, elapsedText, nextText, placeText } from "../words/tour.js";
import { el, setAttribute, setText } from "./dom.js";
import { CHANNEL } from "./tour.js";

/** @import { Tour } from "./tour.js" */

const SECOND = 1000;
const ON = ["PageDown", "ArrowRight", " "];
const BACK = ["PageUp", "ArrowLeft"];

const channel = new BroadcastChannel(CHANNEL + location.hash.slice(1));
const parts = {
  lesson: el("span"),
  place: el("span"),
  time: el("time", { role: "timer" }),
  title: el("h1"),
  notes: el("p"),
  look: el("p", { class: "look" }),
  next: el("p", { class: "next" }),
  back: el("button", { type: "button", text: TOUR.back, onclick: () => channel.postMessage(-1) }),
  on: el("button", { type: "button", text: TOUR.next, onclick: () => channel.postMessage(1) }),
};
let began = 0;

/** @param {Tour|null} tour */
function show(tour) {
  setText(parts.lesson, tour?.lesson ?? "");
  setText(parts.place, tour ? placeText(tour.place, tour.steps) : "");
  setText(parts.title, tour?.title ?? TOUR.none);
  setText(parts.notes, tour ? tour.notes || TOUR.noNotes : "");
  setText(parts.look, tour?.look ?? "");
  parts.look.hidden = !tour?.look;
  setText(parts.next, tour ? nextText(tour.next) : "");
  setAttribute(parts.back, "disabled", tour && tour.place > 1 ? null : "");
  setAttribute(parts.on, "disabled", tour?.next ? null : "");
  if (!tour) began = 0;
  tick();
}

function tick() {
  setText(parts.time, began ? elapsedText((Date.now() - began) / SECOND) : "");
}

document.body.append(
  el("header", {}, parts.lesson, parts.place, parts.time),
  el("main", { "aria-live": "polite" }, parts.title, parts.notes, parts.look, parts.next),
  el("nav", {}, parts.back, parts.on),
);
channel.onmessage = ({ data }) => {
  if (typeof data !== "object" || data === null) return;
  began = data.began;
  show(data.tour);
};
addEventListener("keydown", (event) => {
  if (event.key === " " && event.target instanceof HTMLButtonElement) return;
  const by = ON.includes(event.key) ? 1 : BACK.includes(event.key) ? -1 : 0;
  if (!by) return;
  event.preventDefault();
  channel.postMessage(by);
});
setInterval(tick, SECOND);
show(null);
channel.postMessage("hello");
