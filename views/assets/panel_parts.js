// @ts-check
/** What the three panels are built of: elements, canvases, a tooltip, the opening sentence. */

import { el } from "./dom.js";
import { truth } from "./format.js";
import { sentenceParts } from "./sentences.js";
import { traceIndex } from "./trace_index.js";

/** @typedef {import("./sentences.js").Part} Part */

// --- what the cursor is at ----------------------------------------------------------------------

/**
 * The step at the cursor, its events so far, and how far into the step the cursor is.
 * @param {any} store
 */
export function atCursor(store) {
  const record = store.records[store.cursor];
  const entry = record ? store.stepAt(store.cursor) : null;
  const events = entry
    ? store.eventsOfStep(entry).filter((/** @type {any} */ item) => item.kind === "event")
    : [];
  const command = !record || record.phase === "command";
  const phase = command ? 0 : PHASES.indexOf(record.phase) + (record.kind === "patch" ? 1 : 0.5);
  return { step: stepOf(store), entry, events, command, share: phase / PHASES.length };
}

/** The step that the cursor's record belongs to. @param {any} store @returns {number} */
export function stepOf(store) {
  return store.records[store.cursor]?.step ?? store.header?.state?.engine?.step ?? 0;
}

export const PHASES = ["arrive", "schedule", "prepare", "execute", "sample", "update", "output"];

/**
 * The opening sentence of a view, in parts.
 * @param {any} store @param {string} view @returns {Part[]}
 */
export function sentenceOf(store, view) {
  const index = traceIndex(store);
  const { events, step } = atCursor(store);
  return sentenceParts(events, view, {
    step: store.cursor < 0 ? undefined : step,
    promptTokens: (id) => index.rows.get(id)?.promptTokens,
    device: store.header?.model?.device,
  });
}

/** Move the cursor to the end of a step. @param {any} store @param {number} step */
export function seekStep(store, step) {
  const entry = store.steps.findLast(
    (/** @type {any} */ item) => item.step === step && !item.command,
  );
  if (entry) store.seek(entry.last);
}

/**
 * The request a panel shows: the selected one, else the newest running, else the newest.
 * @param {any} store
 */
export function shownRequest(store) {
  const requests = store.state?.requests ?? {};
  const chosen = store.selection?.request;
  if (chosen && requests[chosen]) return chosen;
  const ids = Object.keys(requests);
  const order = traceIndex(store).rows;
  let best = null;
  for (const id of order.keys()) {
    const request = requests[id];
    if (!request) continue;
    if (request.status === "running" || best === null || requests[best].status !== "running")
      best = id;
  }
  return best ?? ids[ids.length - 1] ?? null;
}

// --- sentence -----------------------------------------------------------------------------------

/** The sentence as an element: each part says which events it was made of, and leads to them. */
export class Sentence {
  /** @param {any} store @param {string} view */
  constructor(store, view) {
    this.store = store;
    this.view = view;
    this.element = el("p", { class: "gbp-sentence" });
    this.shown = "";
  }

  update() {
    const parts = sentenceOf(this.store, this.view);
    const key = JSON.stringify(parts);
    if (key === this.shown) return;
    this.shown = key;
    this.element.replaceChildren(...parts.map((part) => this.part(part)));
  }

  /** @param {Part} part */
  part(part) {
    if (part.seqs.length === 0) return document.createTextNode(part.text);
    const [, lead, text] = /** @type {RegExpMatchArray} */ (
      part.text.match(/^((?:; |: |, | and )?)([\s\S]*)$/)
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
    span.className = "gbp-said";
    span.dataset.seqs = part.seqs.join(" ");
    span.addEventListener("click", () => {
      this.store.seek(part.seqs[0] - (this.store.header?.base_seq ?? 0));
    });
    const whole = document.createDocumentFragment();
    whole.append(lead, span);
    return whole;
  }
}

// --- colours ------------------------------------------------------------------------------------

const NAMES = [
  "bg",
  "panel",
  "panel-2",
  "border",
  "text",
  "muted",
  "faint",
  "accent",
  "event",
  "ok",
  "warn",
  "bad",
  "backend",
  "database",
  "cloud",
  "region",
  "font",
  "mono",
];

/** @typedef {Record<string, string> & {theme: string}} Palette */

/** The page's colours for a canvas, read again when the theme changes. */
export class Colours {
  /** @param {HTMLElement} root @param {() => void} changed */
  constructor(root, changed) {
    this.root = root;
    const host = /** @type {ShadowRoot} */ (root.getRootNode()).host;
    this.source = /** @type {HTMLElement} */ (
      root.closest("[data-theme]") ?? host?.closest("[data-theme]") ?? document.documentElement
    );
    /** @type {Palette | null} */
    this.cached = null;
    this.observer = new MutationObserver(() => {
      this.cached = null;
      changed();
    });
    this.observer.observe(this.source, { attributes: true, attributeFilter: ["data-theme"] });
  }

  /** @returns {Palette} */
  get() {
    if (this.cached) return this.cached;
    const style = getComputedStyle(this.root);
    /** @type {any} */
    const palette = { theme: this.source.getAttribute("data-theme") === "dark" ? "dark" : "light" };
    for (const name of NAMES) palette[name] = style.getPropertyValue(`--gb-${name}`).trim();
    palette.font ||= "system-ui, sans-serif";
    palette.mono ||= "ui-monospace, monospace";
    this.cached = palette;
    return palette;
  }

  destroy() {
    this.observer.disconnect();
  }
}

// --- canvas -------------------------------------------------------------------------------------

/**
 * A canvas that is as sharp as the screen, is named for those who do not see it, and takes keys.
 */
export class Plane {
  /** @param {string} label @param {string} [className] */
  constructor(label, className = "") {
    this.canvas = document.createElement("canvas");
    this.canvas.className = `gbp-canvas ${className}`.trim();
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", label);
    this.context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    this.width = 0;
    this.height = 0;
    this.ratio = 0;
  }

  /** @param {string} text */
  label(text) {
    if (this.canvas.getAttribute("aria-label") !== text)
      this.canvas.setAttribute("aria-label", text);
  }

  /**
   * Set the size in CSS pixels and begin with an empty canvas.
   * @param {number} width @param {number} height
   */
  begin(width, height) {
    const ratio = window.devicePixelRatio || 1;
    if (width !== this.width || height !== this.height || ratio !== this.ratio) {
      [this.width, this.height, this.ratio] = [width, height, ratio];
      this.canvas.width = Math.max(1, Math.round(width * ratio));
      this.canvas.height = Math.max(1, Math.round(height * ratio));
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, width, height);
    return this.context;
  }

  /** Where the pointer is on the canvas. @param {MouseEvent} event */
  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }
}

/**
 * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} w
 * @param {number} h @param {number} r
 */
export function roundRect(c, x, y, w, h, r) {
  c.beginPath();
  c.roundRect(x, y, w, h, Math.max(0, Math.min(r, w / 2, h / 2)));
}

/**
 * Cut text to a width.
 * @param {CanvasRenderingContext2D} c @param {string} text @param {number} width
 */
export function fit(c, text, width) {
  if (c.measureText(text).width <= width) return text;
  let cut = text;
  while (cut.length > 1 && c.measureText(`${cut}…`).width > width) cut = cut.slice(0, -1);
  return `${cut}…`;
}

// --- tooltip ------------------------------------------------------------------------------------

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

// --- the twin for those who do not see a canvas -------------------------------------------------

const REST_MS = 400;

/** A table that says what a canvas shows, brought up to date when the page is at rest. */
export class Twin {
  /** @param {string} caption @param {string[]} columns @param {() => string[][]} rows */
  constructor(caption, columns, rows) {
    this.rows = rows;
    this.body = document.createElement("tbody");
    const head = el("tr", {}, ...columns.map((name) => el("th", { scope: "col" }, name)));
    this.element = el(
      "table",
      { class: "gb-sr" },
      el("caption", {}, caption),
      el("thead", {}, head),
      this.body,
    );
    this.timer = 0;
  }

  later() {
    if (this.timer) clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.now(), REST_MS);
  }

  now() {
    this.timer = 0;
    const rows = this.rows().slice(0, 60);
    this.body.replaceChildren(
      ...rows.map((cells) => el("tr", {}, ...cells.map((cell) => el("td", {}, cell)))),
    );
  }

  destroy() {
    clearTimeout(this.timer);
  }
}

// --- a panel ------------------------------------------------------------------------------------

/**
 * Draw again, at most once a frame, when size or theme changed. Sizes are read here and nowhere
 * else, since reading one in the middle of drawing makes the browser lay out the page at once.
 * @param {HTMLElement} root @param {(force: boolean) => void} draw @param {HTMLElement[]} measured
 */
export function redrawOnChange(root, draw, measured = []) {
  let frame = 0;
  const again = () => {
    if (frame) return;
    frame = requestAnimationFrame(() => {
      frame = 0;
      draw(true);
    });
  };
  /** @type {Map<Element, {width: number, height: number}>} */
  const sizes = new Map();
  const measure = (/** @type {Element} */ element) =>
    sizes.set(element, {
      width: Math.floor(element.clientWidth),
      height: Math.floor(element.clientHeight),
    });
  const observer = new ResizeObserver((entries) => {
    for (const entry of entries) measure(entry.target);
    again();
  });
  for (const element of [root, ...measured]) observer.observe(element);
  const colours = new Colours(root, again);
  return {
    colours,
    again,
    /** @param {HTMLElement} element one of `measured` */
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
