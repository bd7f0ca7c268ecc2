// @ts-check
/** What a panel draws on: a sharp canvas, and the page's colours for it. */
import { themeOf, themedOf } from "../page/theme.js";
import { fitted } from "../words/format.js";

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
    this.source = themedOf(root);
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
    const palette = { theme: themeOf(this.source) };
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

const MOST_KEPT = 5000;
/** @type {Map<string, string>} texts as they were cut, by font, width and text */
const cuts = new Map();
// A font that comes later has other letters.
document.fonts.addEventListener("loadingdone", () => cuts.clear());

/**
 * Cut text to a width.
 * @param {CanvasRenderingContext2D} c @param {string} text @param {number} width
 * @param {string} [font] that is set, where it is at hand: a browser takes its time to tell
 */
export function fit(c, text, width, font = c.font) {
  const key = `${font} ${width} ${text}`;
  let cut = cuts.get(key);
  if (cut === undefined) {
    cut = fitted(text, (part) => c.measureText(part).width <= width);
    if (cuts.size >= MOST_KEPT) cuts.clear();
    cuts.set(key, cut);
  }
  return cut;
}

/**
 * The lines of a text, none wider than that but a word that is.
 * @param {CanvasRenderingContext2D} c @param {string} text @param {number} width
 */
export function linesIn(c, text, width) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = `${lines[lines.length - 1]} ${word}`.trim();
    if (c.measureText(longer).width > width && lines[lines.length - 1]) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}

/** @type {Map<string, CanvasPattern>} by colour and sharpness */
const hatches = new Map();

/** A band of slanted lines. @param {CanvasRenderingContext2D} c @param {string} colour */
export function hatch(c, colour) {
  const ratio = window.devicePixelRatio || 1;
  const key = `${colour} ${ratio}`;
  const known = hatches.get(key);
  if (known) return known;
  const size = Math.round(6 * ratio);
  const tile = document.createElement("canvas");
  tile.width = size;
  tile.height = size;
  const t = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
  t.strokeStyle = colour;
  t.lineWidth = 1.1 * ratio;
  t.beginPath();
  for (const shift of [-size, 0, size]) {
    t.moveTo(shift - 1, size + 1);
    t.lineTo(shift + size + 1, -1);
  }
  t.stroke();
  const pattern = /** @type {CanvasPattern} */ (c.createPattern(tile, "repeat"));
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  hatches.set(key, pattern);
  return pattern;
}

/**
 * Text that stays legible over a line or an edge.
 * @param {CanvasRenderingContext2D} c @param {string} text @param {number} x @param {number} y
 * @param {string} halo
 */
export function haloText(c, text, x, y, halo) {
  c.save();
  c.strokeStyle = halo;
  c.lineWidth = 3;
  c.lineJoin = "round";
  c.setLineDash([]);
  c.strokeText(text, x, y);
  c.restore();
  c.fillText(text, x, y);
}
