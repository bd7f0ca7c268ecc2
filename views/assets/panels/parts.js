// @ts-check
/** What the panels are built of: the opening sentence, a tooltip, a table, a legend. */
import { el } from "../page/dom.js";
import { Rest } from "../page/pace.js";
import { truth } from "../page/truth.js";
import { Colours } from "./canvas.js";
import { phaseOf } from "./cursor.js";

/** @import { Store } from "../core/store.js" */
/** @import { Part } from "../words/parts.js" */

/**
 * The sentence and the phase's line below it: each part says which events it was made of, and leads
 * to them.
 */
export class Sentence {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.text = el("p", { class: "gbp-sentence" });
    this.phase = el("p", { class: "gbp-phase-words" });
    this.element = el("div", { class: "gbp-opening" }, this.text, this.phase);
    this.shown = "";
  }

  /** @param {Part[]} parts */
  update(parts) {
    const phase = phaseOf(this.store);
    const key = JSON.stringify([parts, phase]);
    if (key === this.shown) return;
    this.shown = key;
    this.text.replaceChildren(...parts.map((part) => this.part(part)));
    this.phase.replaceChildren(...phase.map((part) => this.part(part)));
  }

  /** @param {Part} part */
  part(part) {
    if (part.seqs.length === 0) return document.createTextNode(part.text);
    const [, lead, text] = /** @type {RegExpMatchArray} */ (
      part.text.match(/^((?:; |: |, |\. | and )?)([\s\S]*)$/)
    );
    const from =
      part.seqs.length === 1
        ? `event ${part.seqs[0]}`
        : `${part.seqs.length} events from ${part.seqs[0]}`;
    const span = truth(
      part.truth ?? "measured",
      `from ${from} of the log; click to go there`,
      text,
    );
    span.className = part.aside ? "gbp-said is-aside" : "gbp-said";
    span.dataset.seqs = part.seqs.join(" ");
    span.addEventListener("click", () => {
      this.store.jump(part.seqs[0] - (this.store.header?.base_seq ?? 0));
    });
    const whole = document.createDocumentFragment();
    whole.append(lead, span);
    return whole;
  }
}

/** A note beside the pointer: lines of text, the first of them the title. */
export class Tip {
  /** @param {HTMLElement} root positioned */
  constructor(root) {
    this.root = root;
    this.element = el("div", { class: "gbp-tip", role: "status", hidden: true });
    root.append(this.element);
  }

  /** @param {MouseEvent} event @param {string[]} lines */
  show(event, lines) {
    const text = lines.join("\n");
    if (this.element.dataset.text !== text) {
      this.element.dataset.text = text;
      this.element.replaceChildren(...lines.map((line, i) => el(i ? "div" : "strong", {}, line)));
    }
    this.element.hidden = false;
    const box = this.root.getBoundingClientRect();
    const own = this.element.getBoundingClientRect();
    const x = Math.min(event.clientX - box.left + 14, box.width - own.width - 4);
    const below = event.clientY - box.top + 18;
    const y =
      event.clientY + own.height + 26 > window.innerHeight ? below - own.height - 30 : below;
    this.element.style.transform = `translate(${Math.max(4, x)}px, ${y}px)`;
  }

  hide() {
    this.element.hidden = true;
  }
}

export const MOST_ROWS = 60; // of a table beside a canvas

/** A table that says what a canvas shows, brought up to date when the page is at rest. */
export class Twin {
  /** @param {string} caption @param {string[]} columns @param {() => string[][]} rows */
  constructor(caption, columns, rows) {
    this.rows = rows;
    this.body = document.createElement("tbody");
    const head = el("tr", {}, ...columns.map((name) => el("th", { scope: "col" }, name)));
    const table = el("table", {}, el("caption", {}, caption), el("thead", {}, head), this.body);
    // A table is as wide as its words, whatever it is told; what is around it is not.
    this.element = el("div", { class: "gb-sr", hidden: true }, table);
    this.rest = new Rest(() => this.now());
  }

  later() {
    this.rest.update();
  }

  now() {
    const rows = this.rows().slice(0, MOST_ROWS);
    this.element.hidden = rows.length === 0;
    this.body.replaceChildren(
      ...rows.map((cells) => el("tr", {}, ...cells.map((cell) => el("td", {}, cell)))),
    );
  }

  destroy() {
    this.rest.stop();
  }
}

/**
 * Draw again, at most once a frame, when size or theme changed. Sizes are read here and nowhere
 * else, since reading one in the middle of drawing makes the browser lay out the page at once.
 * @param {HTMLElement} root @param {(force: boolean) => void} draw
 * @param {HTMLElement[]} wide whose width counts, as the root's does: what is drawn in them may
 *   change their height
 * @param {HTMLElement[]} measured whose height counts as well
 */
export function redrawOnChange(root, draw, wide = [], measured = []) {
  let frame = 0;
  const again = () => {
    if (frame) return;
    frame = requestAnimationFrame(() => {
      frame = 0;
      if (root.isConnected) draw(true); // or it is drawn when it comes back
    });
  };
  /** @type {Map<Element, {width: number, height: number}>} */
  const sizes = new Map();
  const measure = (/** @type {Element} */ element) => {
    const size = { width: element.clientWidth, height: element.clientHeight };
    sizes.set(element, size);
    return size;
  };
  const changed = (/** @type {Element} */ element) => {
    const before = sizes.get(element);
    const { width, height } = measure(element);
    if (!before) return false; // a browser tells of each once, and nothing was drawn by it so far
    const high = measured.some((each) => each === element);
    return width !== before.width || (high && height !== before.height);
  };
  const observer = new ResizeObserver((entries) => {
    if (root.isConnected && entries.filter((entry) => changed(entry.target)).length) again();
  });
  for (const element of [root, ...wide, ...measured]) observer.observe(element);
  const colours = new Colours(root, again);
  return {
    colours,
    again,
    /** @param {HTMLElement} element one of those above */
    size(element) {
      if (!sizes.has(element)) measure(element);
      return /** @type {{width: number, height: number}} */ (sizes.get(element));
    },
    destroy() {
      cancelAnimationFrame(frame);
      observer.disconnect();
      colours.destroy();
    },
  };
}

/** @type {WeakMap<Element, string>} of what its children were made */
const madeOf = new WeakMap();

/**
 * Make an element's children anew, but only where what they are made of has changed. `make` is
 * handed just that: what it reads beside it must never change.
 * @template T
 * @param {Element} node @param {T} from @param {(from: T) => (Node|string)[]} make
 */
export function remake(node, from, make) {
  const key = JSON.stringify(from);
  if (madeOf.get(node) === key) return;
  madeOf.set(node, key);
  node.replaceChildren(...make(from));
}

/**
 * A legend: what each mark means.
 * @param {[string, string][]} items class of the mark, its meaning
 */
export function legend(items) {
  const entries = items.map(([mark, meaning]) =>
    el("li", {}, el("i", { class: `gbp-mark ${mark}`, "aria-hidden": "true" }), meaning),
  );
  return el("ul", { class: "gbp-legend" }, ...entries);
}

/**
 * A part of a panel under a small heading.
 * @param {string} title @param {string} name @param {...(Node|string)} children
 */
export function section(title, name, ...children) {
  return el(
    "section",
    { class: `gbp-section gbp-${name}` },
    el("h3", { class: "gbp-title" }, title),
    ...children,
  );
}
