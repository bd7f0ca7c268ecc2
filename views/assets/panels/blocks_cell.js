// @ts-check
/** One block of the pool on a canvas: its fill in its owner's colour, its name, its hash. */
import { onRequestColour } from "../words/colours.js";
import { CACHED_FREE, NULL_BLOCK } from "./blocks_model.js";
import { haloText, hatch, roundRect } from "./canvas.js";

/** @import { Pool } from "./blocks_model.js" */

/** From this share on the fill lies behind the whole of a block's name. */
const NAME_COVERED = 0.7;

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
    c.globalAlpha = 0.13;
    c.fillStyle = colours.ok;
    roundRect(c, x, y, side, side, 4);
    c.fill();
    c.globalAlpha = 0.75;
    c.strokeStyle = colours.ok;
  } else {
    c.strokeStyle = colours.border;
  }
  roundRect(c, x + 0.5, y + 0.5, side - 1, side - 1, 4);
  c.stroke();
  c.globalAlpha = 1;
  if (kind === CACHED_FREE) hashMark(c, x, y, side, colours.ok);
  drawName(c, id, x, y, side, kind === CACHED_FREE ? colours.ok : colours.faint, colours);
}

/**
 * @param {CanvasRenderingContext2D} c @param {Pool} pool @param {number} id @param {number} x
 * @param {number} y @param {number} side @param {string[]} hues @param {any} colours
 */
export function drawUsed(c, pool, id, x, y, side, hues, colours) {
  const hue = hues[pool.owner[id]] ?? colours.muted;
  const share = pool.fill[id] / pool.blockSize;
  const radius = side < 12 ? 0 : 4;
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
  if (pool.stale[id] > 0) {
    const first = share + pool.scheduled[id] / pool.blockSize;
    drawStale(c, x, y, side, first, pool.stale[id] / pool.blockSize, colours);
  }
  if (pool.second[id] >= 0)
    drawSecond(c, x, y, side, radius, hues[pool.second[id]] ?? colours.muted);
  if (side < 12) return;
  const on = onRequestColour(colours.theme);
  if (share >= NAME_COVERED) drawName(c, id, x, y, side, on, colours);
  else drawName(c, id, x, y, side, colours.text, colours, colours.panel);
  if (pool.hashed[id]) hashMark(c, x, y, side, share === 1 ? on : hue);
  if (pool.refs[id] > 1) drawCount(c, pool.refs[id], x, y, side, colours);
}

/**
 * The corner of a shared block has its second owner's colour.
 * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} side
 * @param {number} radius @param {string} hue
 */
function drawSecond(c, x, y, side, radius, hue) {
  c.save();
  c.beginPath();
  c.moveTo(x + side, y);
  c.lineTo(x + side, y + side);
  c.lineTo(x, y + side);
  c.clip();
  c.fillStyle = hue;
  box(c, x, y, side, side, radius);
  c.restore();
}

/**
 * @param {CanvasRenderingContext2D} c @param {number} id @param {number} x @param {number} y
 * @param {number} side @param {string} colour @param {any} colours
 * @param {string} [halo] where an edge runs behind the name
 */
function drawName(c, id, x, y, side, colour, colours, halo = "") {
  if (side < 20) return;
  c.font = `${side >= 30 ? 11 : 9}px ${colours.mono}`;
  c.textAlign = "center";
  c.fillStyle = colour;
  if (halo) haloText(c, String(id), x + side / 2, y + side / 2 + 0.5, halo);
  else c.fillText(String(id), x + side / 2, y + side / 2 + 0.5);
}

/**
 * Its content has a hash.
 * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} side
 * @param {string} colour
 */
function hashMark(c, x, y, side, colour) {
  const size = side >= 24 ? 6 : 4;
  c.fillStyle = colour;
  c.beginPath();
  c.moveTo(x + 3, y + 3);
  c.lineTo(x + 3 + size, y + 3);
  c.lineTo(x + 3, y + 3 + size);
  c.fill();
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
 * How many requests hold it.
 * @param {CanvasRenderingContext2D} c @param {number} refs @param {number} x @param {number} y
 * @param {number} side @param {any} colours
 */
function drawCount(c, refs, x, y, side, colours) {
  if (side < 16) return;
  const r = side >= 26 ? 7 : 5.5;
  c.fillStyle = colours.panel;
  c.beginPath();
  c.arc(x + side - r * 0.75, y + side - r * 0.75, r, 0, 7);
  c.fill();
  c.font = `700 ${r + 2}px ${colours.mono}`;
  c.textAlign = "center";
  c.fillStyle = colours.text;
  c.fillText(String(refs), x + side - r * 0.75, y + side - r * 0.75 + 0.5);
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
