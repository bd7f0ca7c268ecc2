// @ts-check
/**
 * Tour mode, for the front of a room: the lesson and what it shows, large, and nothing else. A
 * clicker's keys press the lesson's own buttons. A window with the presenter's notes follows by a
 * BroadcastChannel and can press them as well.
 *
 * @typedef {{lesson: string, place: number, steps: number, title: string, next: string|null,
 *   look: string, notes: string}} Tour a step of the lesson that is open
 */
import { TOUR, placeText } from "../words/tour.js";
import { el, setAttribute, setText } from "./dom.js";

/** @import { Store } from "../core/store.js" */

export const CHANNEL = "glassbox-tour-"; // and the id of the page that presents
const KEYS = /** @type {Record<string, number>} */ ({
  PageDown: 1,
  PageUp: -1,
  ArrowRight: 1,
  ArrowLeft: -1,
});
const TYPED_IN = "input, textarea, select, [role=combobox], [role=radio]";

export class TourMode {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    /** @type {Tour|null} */
    this.tour = null;
    this.isOn = false;
    this.began = 0; // in ms since the epoch
    /** Whether the screen is full no more because the notes were opened. */
    this.opensNotes = false;
    this.id = crypto.getRandomValues(new Uint32Array(2)).join("");
    this.channel = new BroadcastChannel(CHANNEL + this.id);
    this.channel.onmessage = ({ data }) => {
      if (data === "hello") this.tell();
      else if (this.isOn && (data === 1 || data === -1)) this.go(data);
    };
    this.place = el("span", { class: "gb-tour-place" });
    this.backButton = button(TOUR.back, () => this.go(-1));
    this.nextButton = button(TOUR.next, () => this.go(1));
    this.bar = el(
      "div",
      { class: "gb-tour", role: "toolbar", "aria-label": TOUR.bar, hidden: true },
      this.backButton,
      this.place,
      this.nextButton,
      button(TOUR.notes, () => this.openNotes(), TOUR.notesTitle),
      button(TOUR.leave, () => this.leave(), TOUR.leaveTitle),
    );
    /** @type {HTMLElement|null} */
    this.root = null;
  }

  /** @param {HTMLElement} root of the workspace, in which the bar lies */
  attach(root) {
    if (this.root === root) return;
    this.root = root;
    root.append(this.bar);
    root.toggleAttribute("data-tour", this.isOn);
  }

  /** Catch the keys from now on; returns what ends that. @returns {() => void} */
  listen() {
    const pressed = (/** @type {KeyboardEvent} */ event) => this.pressed(event);
    const clicked = (/** @type {MouseEvent} */ event) => this.clicked(event);
    const changed = () => this.screenChanged();
    document.addEventListener("keydown", pressed, true);
    document.addEventListener("click", clicked, true);
    document.addEventListener("fullscreenchange", changed);
    return () => {
      document.removeEventListener("keydown", pressed, true);
      document.removeEventListener("click", clicked, true);
      document.removeEventListener("fullscreenchange", changed);
    };
  }

  /** @param {Tour|null} tour what the server has open */
  follow(tour) {
    if (JSON.stringify(tour) === JSON.stringify(this.tour)) return;
    this.tour = tour;
    if (!tour) this.leave();
    this.update();
    this.tell();
  }

  update() {
    const { tour } = this;
    this.bar.hidden = !this.isOn;
    setText(this.place, tour ? placeText(tour.place, tour.steps) : "");
    setAttribute(this.backButton, "disabled", tour && tour.place > 1 ? null : "");
    setAttribute(this.nextButton, "disabled", tour?.next ? null : "");
  }

  /** Let the window of the notes know where the lesson is. */
  tell() {
    this.channel.postMessage({ tour: this.isOn ? this.tour : null, began: this.began });
  }

  enter() {
    if (!this.tour) return;
    if (!this.isOn) this.began = Date.now();
    this.show(true);
    // Where the browser refuses it, the window is all there is.
    document.documentElement.requestFullscreen?.().catch(() => {});
  }

  leave() {
    if (!this.isOn) return;
    this.show(false);
    if (document.fullscreenElement) void document.exitFullscreen();
  }

  /** @param {boolean} isOn */
  show(isOn) {
    this.isOn = isOn;
    document.documentElement.toggleAttribute("data-gb-tour", isOn);
    this.root?.toggleAttribute("data-tour", isOn);
    this.update();
    this.tell();
    this.store.changed();
  }

  /** Escape in full screen is the browser's own: it ends with it. */
  screenChanged() {
    if (document.fullscreenElement) return;
    if (this.opensNotes) this.opensNotes = false;
    else this.leave();
  }

  openNotes() {
    const address = `/assets/notes.html#${this.id}`;
    const opened = window.open(address, `notes${this.id}`, "width=720,height=820");
    this.opensNotes = opened !== null && Boolean(document.fullscreenElement);
  }

  /** Press the lesson's own button, if it can be. @param {number} by 1 or -1 */
  go(by) {
    const name = by > 0 ? "next" : "back";
    const found = document.querySelector(`.st-key-gb-lesson-${name} button`);
    if (!(found instanceof HTMLButtonElement)) return;
    if (found.disabled && by > 0) this.store.tell("info", TOUR.waits);
    found.click();
  }

  /** @param {MouseEvent} event */
  clicked(event) {
    const target = event.composedPath()[0];
    if (!(target instanceof Element) || !target.closest(".st-key-gb-lesson-present button")) return;
    event.preventDefault();
    event.stopPropagation();
    this.enter();
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = event.composedPath()[0];
    const types = target instanceof Element && target.matches(TYPED_IN);
    const by = KEYS[event.key];
    if (!this.isOn) {
      if (event.key !== "f" || types || !this.tour) return;
      this.enter();
    } else if (event.key === "Escape") this.leave();
    else if (event.key === "f" && !types) this.enter();
    else if (by && (event.key.startsWith("Page") || !types)) this.go(by);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

/** @param {string} text @param {() => void} act @param {string} [title] */
function button(text, act, title) {
  return el("button", { class: "gb-button", type: "button", text, title, onclick: act });
}
