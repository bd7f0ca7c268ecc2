// @ts-check
/** One block of the pool on a canvas: its fill in its owner's colour, its name, its hash. */
import { onRequestColour, requestLap } from "../words/colours.js";
import { CACHED_FREE, NULL_BLOCK, USED } from "./blocks_model.js";
import { haloText, hatch, roundRect } from "./canvas.js";

/** @import { Pool } from "./blocks_model.js" */

/** From this share on the fill lies behind the whole of a block's name. */
const NAME_COVERED = 0.7;
const GLYPH = 0.6; // width of a monospaced glyph in its size
/** From this side on a used block has round corners, and marks besides its owner's laps. */
const LEAST_MARKED = 12;
const LEAST_LAP = 8;

/**
 * @param {CanvasRenderingContext2D} c @param {number} id @param {number} kind @param {number} x
 * @param {number} y @param {number} side @param {any} colours
 */
export function drawFree(c, id, kind, x, y, side, colours) {
  c.globalAlpha = 1;
  c.lineWidth = 1;
  if (kind === NULL_BLOCK) {
    c.fillStyle = colours.border;
    roundRect(c, x, y, side, side, 4);
    c.fill();
    c.strokeStyle = colours.muted;
    c.beginPath();
    c.moveTo(x + side * 0.28, y + side * 0.72);
    c.lineTo(x + side * 0.72, y + side * 0.28);
    c.stroke();
    return;
  }
  if (kind === CACHED_FREE) {
    drawCached(c, x, y, side, colours);
  } else {
    c.strokeStyle = colours.border;
    roundRect(c, x + 0.5, y + 0.5, side - 1, side - 1, 4);
    c.stroke();
  }
  drawName(c, id, x, y, side, kind === CACHED_FREE ? colours.ok : colours.faint, colours);
}

/** Whether a block's name can stand in its cell. @param {number} side */
export const hasName = (side) => side >= 18;

/**
 * A free block whose content is cached, without its name.
 * @param {CanvasRenderingContext2D | OffscreenCanvasRenderingContext2D} c @param {number} x
 * @param {number} y @param {number} side @param {any} colours
 */
function drawCached(c, x, y, side, colours) {
  c.lineWidth = 1;
  c.fillStyle = c.strokeStyle = colours.ok;
  c.globalAlpha = 0.13;
  c.beginPath();
  c.roundRect(x, y, side, side, 4);
  c.fill();
  c.globalAlpha = 0.75;
  c.beginPath();
  c.roundRect(x + 0.5, y + 0.5, side - 1, side - 1, 4);
  c.stroke();
  c.globalAlpha = 1;
  c.beginPath();
  corner(c, x, y, markSize(side));
  c.fill();
}

/** @type {Map<string, ImageBitmap>} of such a block, by its side, its colour and sharpness */
const pictures = new Map();

/**
 * Many such blocks. They look alike, and a picture is put there sooner than round corners are
 * filled.
 * @param {CanvasRenderingContext2D} c @param {{x: number, y: number}[]} places on whole pixels
 * @param {number} side @param {any} colours
 */
export function drawManyCached(c, places, side, colours) {
  const ratio = window.devicePixelRatio || 1;
  const key = `${side} ${colours.ok} ${ratio}`;
  const size = Math.ceil(side * ratio);
  let picture = pictures.get(key);
  if (!picture) {
    const canvas = new OffscreenCanvas(size, size);
    const pen = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
    pen.scale(ratio, ratio);
    drawCached(pen, 0, 0, side, colours);
    picture = canvas.transferToImageBitmap();
    pictures.set(key, picture);
  }
  c.globalAlpha = 1;
  for (const { x, y } of places) c.drawImage(picture, x, y, size / ratio, size / ratio);
}

/**
 * Whether a block is drawn in its owner's colour, so small that there is no more to it.
 * @param {Pool} pool @param {number} id @param {number} side
 */
export function isFull(pool, id, side) {
  const whole = pool.fill[id] === pool.blockSize && pool.scheduled[id] + pool.stale[id] === 0;
  return side < LEAST_MARKED && whole && pool.kind[id] === USED && !pool.sharers.has(id);
}

/**
 * Such blocks of one request, all at once.
 * @param {CanvasRenderingContext2D} c @param {Pool} pool
 * @param {{of: number, x: number, y: number}[]} places @param {number} side
 * @param {string[]} hues @param {any} colours
 */
export function drawFull(c, pool, places, side, hues, colours) {
  const owner = pool.owner[places[0].of];
  c.globalAlpha = 1;
  c.fillStyle = hues[owner] ?? colours.muted;
  c.beginPath();
  for (const { x, y } of places) c.rect(x, y, side, side);
  c.fill();
  const lap = requestLap(pool.owners[owner]);
  if (lap > 0 && side >= LEAST_LAP) drawLap(c, places, side, lap, colours.panel);
}

/**
 * @param {CanvasRenderingContext2D} c @param {Pool} pool @param {number} id @param {number} x
 * @param {number} y @param {number} side @param {string[]} hues @param {any} colours
 */
export function drawUsed(c, pool, id, x, y, side, hues, colours) {
  if (pool.sharers.has(id)) {
    drawShared(c, pool, id, x, y, side, hues, colours);
    return;
  }
  const hue = hues[pool.owner[id]] ?? colours.muted;
  const share = pool.fill[id] / pool.blockSize;
  const radius = side < LEAST_MARKED ? 0 : 4;
  c.globalAlpha = share < 1 ? 0.26 : 1;
  c.fillStyle = hue;
  box(c, x, y, side, side, radius);
  c.globalAlpha = 1;
  if (share > 0 && share < 1) {
    c.save();
    c.beginPath();
    c.rect(x, y + side * (1 - share), side, side * share);
    c.clip();
    box(c, x, y, side, side, radius);
    c.restore();
  }
  if (pool.scheduled[id] > 0)
    drawScheduled(c, x, y, side, share, pool.scheduled[id] / pool.blockSize, hue);
  const lap = requestLap(pool.owners[pool.owner[id]]);
  if (lap > 0 && side >= LEAST_LAP) drawLap(c, [{ x, y }], side, lap, colours.panel);
  if (pool.stale[id] > 0) {
    const first = share + pool.scheduled[id] / pool.blockSize;
    drawStale(c, x, y, side, first, pool.stale[id] / pool.blockSize, colours);
  }
  if (side < LEAST_MARKED) return;
  const on = onRequestColour(colours.theme);
  if (share >= NAME_COVERED) drawName(c, id, x, y, side, on, colours);
  else drawName(c, id, x, y, side, colours.text, colours, colours.panel);
  if (pool.hashed[id]) hashMark(c, x, y, side, share === 1 ? on : hue);
  if (pool.refs[id] > 1) drawCount(c, pool.refs[id], x, y, side, colours);
}

/**
 * A notch at its right for each time that its owner's colour had been another's before.
 * @param {CanvasRenderingContext2D} c @param {{x: number, y: number}[]} places @param {number} side
 * @param {number} lap @param {string} colour
 */
function drawLap(c, places, side, lap, colour) {
  const high = side < 18 ? 1.5 : 2.5;
  c.fillStyle = colour;
  c.beginPath();
  for (const { x, y } of places)
    for (let i = 0; i < lap && (i + 1) * 2 * high < side; i += 1)
      c.rect(x + side * 0.72, y + side - (i + 1) * 2 * high, side * 0.28, high);
  c.fill();
}

/**
 * A block of several: in nobody's colour, with its sharers' colours in a row at its foot.
 * @param {CanvasRenderingContext2D} c @param {Pool} pool @param {number} id @param {number} x
 * @param {number} y @param {number} side @param {string[]} hues @param {any} colours
 */
function drawShared(c, pool, id, x, y, side, hues, colours) {
  const sharers = /** @type {number[]} */ (pool.sharers.get(id));
  const body = colours.theme === "dark" ? colours.muted : colours.text;
  const foot = side < 12 ? side / 2 : Math.max(5, Math.round(side * 0.24));
  c.save();
  c.beginPath();
  c.roundRect(x, y, side, side, side < 12 ? 0 : 4);
  c.clip();
  c.globalAlpha = 1;
  c.fillStyle = body;
  c.fillRect(x, y, side, side);
  if (pool.scheduled[id] > 0) drawScheduled(c, x, y, side, 0, 1, colours.panel);
  const shown = Math.min(sharers.length, Math.max(2, Math.floor(side / 3)));
  for (let i = 0; i < shown; i += 1) {
    const [from, to] = [(side * i) / shown, (side * (i + 1)) / shown];
    c.fillStyle = hues[sharers[i]] ?? colours.muted;
    c.fillRect(x + from, y + side - foot, to - from - (side < 12 ? 0 : 0.75), foot);
  }
  c.restore();
  if (side < 12) return;
  const halo = pool.scheduled[id] > 0 ? body : "";
  drawName(c, id, x, y - foot / 2 + (side < 26 ? 1.5 : 0), side, colours.panel, colours, halo);
  if (pool.hashed[id]) hashMark(c, x, y, side, colours.panel);
  drawCount(c, pool.refs[id], x, y, side, colours);
}

/**
 * @param {CanvasRenderingContext2D} c @param {number} id @param {number} x @param {number} y
 * @param {number} side @param {string} colour @param {any} colours
 * @param {string} [halo] where an edge runs behind the name
 */
function drawName(c, id, x, y, side, colour, colours, halo = "") {
  const size = side >= 30 ? 11 : 9;
  const name = String(id);
  if (!hasName(side) || name.length * size * GLYPH > side) return;
  c.font = `${size}px ${colours.mono}`;
  c.textAlign = "center";
  c.fillStyle = colour;
  if (halo) haloText(c, name, x + side / 2, y + side / 2 + 0.5, halo);
  else c.fillText(name, x + side / 2, y + side / 2 + 0.5);
}

/**
 * Its content has a hash.
 * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} side
 * @param {string} colour
 */
function hashMark(c, x, y, side, colour) {
  c.fillStyle = colour;
  c.beginPath();
  corner(c, x, y, markSize(side));
  c.fill();
}

/** @param {number} side of a block's cell */
const markSize = (side) => (side >= 24 ? 6 : 4);

/**
 * @param {CanvasPath} c @param {number} x @param {number} y @param {number} size
 */
function corner(c, x, y, size) {
  c.moveTo(x + 3, y + 3);
  c.lineTo(x + 3 + size, y + 3);
  c.lineTo(x + 3, y + 3 + size);
}

/**
 * Its hash promises KV that nobody wrote.
 * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} side
 * @param {any} colours
 */
export function drawUncomputed(c, x, y, side, colours) {
  const size = side >= 12 ? Math.min(13, side / 2) : side * 0.6;
  c.globalAlpha = 1;
  c.fillStyle = colours.warn;
  c.fillRect(x, y, size, size);
  if (size < 9) return;
  c.font = `700 ${size - 2}px ${colours.mono}`;
  c.textAlign = "center";
  c.fillStyle = colours.panel;
  c.fillText("!", x + size / 2, y + size / 2 + 0.5);
}

/**
 * How many requests hold it: a tab over its corner above.
 * @param {CanvasRenderingContext2D} c @param {number} refs @param {number} x @param {number} y
 * @param {number} side @param {any} colours
 */
function drawCount(c, refs, x, y, side, colours) {
  if (side < 22) return;
  const size = side >= 30 ? 10 : 8;
  const text = String(refs);
  const w = text.length * size * GLYPH + 4;
  const left = x + side - w + 1.5;
  c.fillStyle = colours.panel;
  roundRect(c, left - 1, y - 2.5, w + 2, size + 2, 3);
  c.fill();
  c.strokeStyle = colours.text;
  c.lineWidth = 1;
  c.stroke();
  c.font = `700 ${size}px ${colours.mono}`;
  c.textAlign = "center";
  c.fillStyle = colours.text;
  c.fillText(text, left + w / 2, y - 1.5 + size / 2);
}

/**
 * The part that this step's forward will fill.
 * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} side
 * @param {number} share filled already @param {number} part of the block @param {string} hue
 */
function drawScheduled(c, x, y, side, share, part, hue) {
  c.fillStyle = hatch(c, hue);
  c.globalAlpha = 0.7;
  c.fillRect(x, y + side * (1 - share - part), side, side * part);
  c.globalAlpha = 1;
}

/**
 * Slots with K and V of rejected drafts, above what is filled: struck out.
 * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} side
 * @param {number} first share below them @param {number} part of the block @param {any} colours
 */
function drawStale(c, x, y, side, first, part, colours) {
  const top = y + side * (1 - first - part);
  c.save();
  c.beginPath();
  c.rect(x, top, side, side * part);
  c.clip();
  c.globalAlpha = 0.22;
  c.fillStyle = colours.bad;
  c.fillRect(x, top, side, side * part);
  c.globalAlpha = 0.9;
  c.strokeStyle = colours.bad;
  c.lineWidth = 1;
  c.beginPath();
  for (let at = -side; at < side; at += 4) {
    c.moveTo(x + at, top);
    c.lineTo(x + at + side, top + side);
  }
  c.stroke();
  c.restore();
}

/**
 * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} w
 * @param {number} h @param {number} r
 */
function box(c, x, y, w, h, r) {
  if (r === 0) {
    c.fillRect(x, y, w, h);
    return;
  }
  roundRect(c, x, y, w, h, r);
  c.fill();
}
