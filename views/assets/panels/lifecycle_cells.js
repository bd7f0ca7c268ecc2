// @ts-check
/** One request in one step, drawn and in words. */
import { onRequestColour } from "../words/colours.js";
import { plural } from "../words/format.js";
import { hatch, roundRect } from "./canvas.js";

/** @import { Cell } from "./lifecycle_model.js" */

/** What is after the cursor: pale, and yet told apart from its ground (3:1), its text in full. */
export const FUTURE = 0.72;
export const FUTURE_FILL = 0.16;

/**
 * @param {CanvasRenderingContext2D} c @param {number} x1 @param {number} y1 @param {number} x2
 * @param {number} y2
 */
export function line(c, x1, y1, x2, y2) {
  c.beginPath();
  c.moveTo(x1, y1);
  c.lineTo(x2, y2);
  c.stroke();
}

/**
 * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} r
 * @param {string} colour
 */
export function dot(c, x, y, r, colour) {
  c.fillStyle = colour;
  c.beginPath();
  c.arc(x, y, r, 0, 7);
  c.fill();
}

/**
 * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} r
 * @param {string} colour
 */
export function ring(c, x, y, r, colour) {
  c.strokeStyle = colour;
  c.lineWidth = 1.6;
  c.beginPath();
  c.arc(x, y, r, 0, 7);
  c.stroke();
  c.lineWidth = 1;
}

/**
 * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {string} colour
 */
export function triangle(c, x, y, colour) {
  c.fillStyle = colour;
  c.beginPath();
  c.moveTo(x - 5, y - 5);
  c.lineTo(x + 5, y - 5);
  c.lineTo(x, y + 5);
  c.fill();
}

/**
 * @typedef {(c: CanvasRenderingContext2D, x: number, y: number, w: number, cell: Cell,
 *   colour: string, colours: any) => void} CellDraw
 */
/** @type {Record<string, CellDraw>} */
export const CELLS = {
  prefill(c, x, y, w, cell, colour, colours) {
    c.fillStyle = c.strokeStyle = colour;
    c.globalAlpha = cell.future ? FUTURE_FILL : 1;
    roundRect(c, x + 1, y - 8, w - 2, 16, 3.5);
    c.fill();
    c.globalAlpha = 1;
    if (cell.future) c.stroke();
    const text = String(cell.tokens);
    const size = Math.min(10.5, (w - 3.5) / (0.6 * text.length));
    if (size < 8) return;
    c.font = `600 ${size}px ${colours.mono}`;
    c.fillStyle = cell.future ? colours.text : onRequestColour(colours.theme);
    c.textAlign = "center";
    c.fillText(text, x + w / 2, y + 0.5);
  },
  decode(c, x, y, w, { drafts }, _colour, colours) {
    if (drafts) drawDrafts(c, x + w / 2 + 3.5, y, drafts, colours);
  },
  "taken-back"(c, x, y, w, _cell, _colour, colours) {
    c.strokeStyle = colours.bad;
    c.setLineDash([2, 2]);
    roundRect(c, x + 1.5, y - 7.5, w - 3, 15, 3.5);
    c.stroke();
    c.setLineDash([]);
  },
  submitted(c, x, y, w, _cell, colour) {
    c.strokeStyle = colour;
    c.setLineDash([1.5, 3]);
    line(c, x, y, x + w, y);
    c.setLineDash([]);
  },
  waiting(c, x, y, w, _cell, colour) {
    c.fillStyle = hatch(c, colour);
    c.fillRect(x, y - 4, w, 8);
  },
  preempted(c, x, y, w, _cell, colour, colours) {
    c.fillStyle = hatch(c, colour);
    c.fillRect(x, y - 4, w, 8);
    c.strokeStyle = colours.bad;
    line(c, x, y - 4.5, x + w, y - 4.5);
    line(c, x, y + 4.5, x + w, y + 4.5);
  },
  idle(c, x, y, w, _cell, colour) {
    c.strokeStyle = colour;
    const alpha = c.globalAlpha;
    c.globalAlpha = alpha * 0.35;
    line(c, x, y, x + w, y);
    c.globalAlpha = alpha;
  },
};

/**
 * The decodes of a row, all at once: there are many of them and they look alike.
 * @param {CanvasRenderingContext2D} c @param {number[]} places where their columns begin
 * @param {number} y @param {number} w @param {string} colour
 */
export function drawDecodes(c, places, y, w, colour) {
  const alpha = c.globalAlpha;
  c.strokeStyle = c.fillStyle = colour;
  c.globalAlpha = alpha * 0.35;
  c.beginPath();
  for (const x of places) {
    c.moveTo(x, y);
    c.lineTo(x + w, y);
  }
  c.stroke();
  c.globalAlpha = alpha;
  c.beginPath();
  for (const x of places) c.roundRect(x + w / 2 - 2, y - 6.5, 4, 13, 2);
  c.fill();
}

/**
 * How many of its drafts were accepted (from below) and rejected (from above).
 * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y
 * @param {{drafted: number, accepted: number}} drafts @param {any} colours
 */
function drawDrafts(c, x, y, { drafted, accepted }, colours) {
  const each = 13 / drafted;
  const gap = each > 3 ? 1 : 0;
  for (let k = 0; k < drafted; k += 1) {
    c.fillStyle = k < accepted ? colours.ok : colours.bad;
    c.fillRect(x, y + 6.5 - (k + 1) * each + gap / 2, 4, each - gap);
  }
}

/**
 * A share whose outcome is on its way: a frame around it. Its request may have ended meanwhile.
 * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} w
 * @param {Cell} cell @param {string} colour @param {any} colours
 */
export function drawFlight(c, x, y, w, cell, colour, colours) {
  if (cell.dropped !== undefined) cross(c, x + w / 2, y, 4.2, colours.bad);
  if (!cell.inFlight && !cell.late) return;
  c.strokeStyle = cell.late ? colours.bad : colour;
  c.lineWidth = 1.25;
  c.setLineDash([2.5, 2]);
  roundRect(c, x + 1, y - 9.5, w - 2, 19, 4);
  c.stroke();
  c.setLineDash([]);
  c.lineWidth = 1;
}

/**
 * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} r
 * @param {string} colour
 */
function cross(c, x, y, r, colour) {
  c.strokeStyle = colour;
  c.lineWidth = 2;
  line(c, x - r, y - r, x + r, y + r);
  line(c, x - r, y + r, x + r, y - r);
  c.lineWidth = 1;
}

/** @type {Record<string, string>} */
const KIND_WORDS = {
  prefill: "prefill",
  decode: "decode",
  "taken-back": "tokens taken back",
  submitted: "submitted",
  waiting: "waiting",
  preempted: "preempted, waiting again",
  idle: "running, got nothing",
};

/** @param {string} id @param {Cell} cell @returns {string[]} */
export function cellLines(id, cell) {
  const lines = [`${id} · step ${cell.step}`];
  if (cell.tokens !== undefined && cell.from !== undefined) {
    lines.push(
      `${KIND_WORDS[cell.kind ?? ""]}: ${plural(cell.tokens, "token")}, ` +
        `positions ${cell.from} to ${cell.from + cell.tokens - 1} of ${cell.known} known`,
    );
    if (cell.from >= Number(cell.known)) lines.push("scheduled before that token was known");
    if (cell.why) lines.push(cell.why);
  } else if (cell.kind) lines.push(KIND_WORDS[cell.kind]);
  if (cell.stopped) lines.push(`not admitted: ${cell.stopped}`);
  if (cell.passedOver) lines.push(`passed over: ${cell.passedOver}`);
  if (cell.lost !== undefined) lines.push(`preempted ${cell.lost}`);
  if (cell.inFlight) lines.push("in flight: what comes of it is not known yet");
  if (cell.late) lines.push(`scheduled before ${id} was found to have ended: it runs for nothing`);
  if (cell.drafts)
    lines.push(`${cell.drafts.accepted} of ${plural(cell.drafts.drafted, "draft")} accepted`);
  if (cell.dropped !== undefined)
    lines.push(`its token is dropped: ${cell.dropped || "it came too late"}`);
  if (cell.end) lines.push(`finished: ${cell.end.why || cell.end.finish}`);
  lines.push(cell.future ? "recorded, after the cursor" : `measured: event ${cell.seq} of the log`);
  return lines;
}
