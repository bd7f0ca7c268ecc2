// @ts-check
/** Back and on to the moments of a chosen kind: preemptions, hits, whatever one looks for. */
import { KINDS, momentsOf, nextPlace } from "../core/moments.js";
import { keepText, recallText } from "../core/tab_memory.js";
import { JUMP, jumpTitle, momentOption, noneFurther } from "../words/moments.js";
import { el, icon, setText } from "./dom.js";

/** @import { Sought } from "../core/moments.js" */
/** @import { Store } from "../core/store.js" */

const KIND_KEY = "glassbox.jump";
const BACK = "M10.5 3 12 4.5 8.5 8l3.5 3.5-1.5 1.5-5-5zM3 3h2v10H3z";
const ON = "M5.5 3 4 4.5 7.5 8 4 11.5 5.5 13l5-5zM11 3h2v10h-2z";
/** @type {Sought[]} */
const CHOICES = ["any", ...KINDS];

export class Jump {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    /** What was said last, and at which record: it holds for no other. */
    this.said = { text: "", cursor: -1 };
    this.options = CHOICES.map((kind) => el("option", { value: kind }));
    this.select = /** @type {HTMLSelectElement} */ (
      el(
        "select",
        {
          class: "gb-select gb-jump-kind",
          "aria-label": JUMP.choose,
          title: JUMP.chooseTitle,
          onchange: () => this.chosen(),
        },
        ...this.options,
      )
    );
    this.select.value = remembered();
    this.back = this.button(-1, JUMP.previous, BACK);
    this.on = this.button(1, JUMP.next, ON);
    this.element = el(
      "div",
      { class: "gb-group gb-jump", role: "group", "aria-label": JUMP.name },
      this.back,
      this.select,
      this.on,
    );
  }

  /** @param {1|-1} way @param {string} name @param {string} path */
  button(way, name, path) {
    return el(
      "button",
      {
        class: "gb-button",
        type: "button",
        "aria-label": name,
        "data-jump": way,
        onclick: () => this.go(way),
      },
      icon(path),
    );
  }

  /** @returns {Sought} */
  get kind() {
    return /** @type {Sought} */ (this.select.value || "any");
  }

  chosen() {
    keepText(KIND_KEY, this.kind);
    this.store.changed();
  }

  /** @param {1|-1} way */
  go(way) {
    const { store, kind } = this;
    const places = momentsOf(store)[kind];
    const place = nextPlace(places, store.cursor, way);
    if (place === undefined) {
      this.said = { text: noneFurther(kind, way, places.length), cursor: store.cursor };
      store.tell("info", this.said.text);
      return;
    }
    store.jump(place);
  }

  update() {
    const { store, kind } = this;
    const moments = momentsOf(store);
    for (const [i, choice] of CHOICES.entries())
      setText(this.options[i], momentOption(choice, moments[choice].length));
    for (const [button, way] of /** @type {[HTMLElement, 1|-1][]} */ ([
      [this.back, -1],
      [this.on, 1],
    ])) {
      const title = jumpTitle(kind, way);
      if (button.title !== title) button.title = title;
    }
    const isOld = store.notice?.text === this.said.text && store.cursor !== this.said.cursor;
    if (this.said.text && isOld) store.tell(null, "");
  }
}

/** @returns {Sought} */
function remembered() {
  const kept = /** @type {Sought} */ (recallText(KIND_KEY));
  return CHOICES.includes(kept) ? kept : "any";
}
