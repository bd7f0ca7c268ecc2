// @ts-check
/** A program's walk, drawn: the block table entry by entry, and the pages in the pool. */
import { onRequestColour, requestColour } from "../words/colours.js";
import { count, plural } from "../words/format.js";
import { tokensIn } from "../words/kernel.js";
import { Plane, haloText, roundRect } from "./canvas.js";

/** @import { KernelTrace, Program } from "../words/kernel.js" */
/** @import { Palette } from "./canvas.js" */

const ENTRY = { width: 40, height: 26, top: 18 };
const POOL_TOP = 104;
const LARGEST_CELL = 34;
const MOST_HEIGHT = 300;
const MOST_BLOCKS = 16_384; // of a pool that is drawn whole

export class WalkPicture {
  constructor() {
    this.plane = new Plane("The walk over the pages", "gbp-kwalk");
  }

  /**
   * @param {KernelTrace} trace @param {Program} program @param {number} at pages read so far
   * @param {Palette} colours @param {number} width
   */
  draw(trace, program, at, colours, width) {
    const grid = gridOf(trace, width);
    const c = this.plane.begin(width, POOL_TOP + grid.rows * grid.cell + 4);
    const order = new Map(program.visits.map((visit, i) => [visit.block, i]));
    const hue = requestColour(trace.request, colours.theme);
    const scene = { c, trace, program, at, colours, width, grid, order, hue };
    c.textBaseline = "middle";
    drawTable(scene);
    drawPool(scene);
    this.plane.label(
      `${plural(at, "page")} of ${program.visits.length} read: ` +
        program.visits.map((visit) => visit.block).join(", "),
    );
  }
}

/**
 * @typedef {{c: CanvasRenderingContext2D, trace: KernelTrace, program: Program, at: number,
 *   colours: Palette, width: number, grid: ReturnType<typeof gridOf>, order: Map<number, number>,
 *   hue: string}} Scene
 */

/**
 * Where blocks lie: the pool in rows, or of a very large one only the request's own.
 * @param {KernelTrace} trace @param {number} width
 */
function gridOf(trace, width) {
  const whole = trace.num_blocks <= MOST_BLOCKS;
  const blocks = whole ? trace.num_blocks : trace.blocks.length;
  let cell = LARGEST_CELL;
  while (cell > 4 && Math.ceil(blocks / Math.floor(width / cell)) * cell > MOST_HEIGHT) cell -= 1;
  const rows = Math.ceil(blocks / Math.max(1, Math.floor(width / cell)));
  const columns = Math.ceil(blocks / rows);
  const place = (/** @type {number} */ block) => (whole ? block : trace.blocks.indexOf(block));
  return {
    cell,
    rows,
    blocks: whole ? Array.from({ length: blocks }, (_, i) => i) : trace.blocks,
    /** @param {number} block */
    at(block) {
      const i = place(block);
      return { x: (i % columns) * cell, y: POOL_TOP + Math.floor(i / columns) * cell };
    },
  };
}

/** @param {KernelTrace} trace */
function poolWords({ num_blocks: blocks }) {
  if (blocks <= MOST_BLOCKS) return "physical blocks of the pool";
  return `its physical blocks, of ${count(blocks)} in the pool`;
}

/** @param {Scene} scene */
function drawPool(scene) {
  const { c, colours, grid, order, at, trace, hue } = scene;
  const own = new Set(trace.blocks);
  const { cell } = grid;
  const gap = cell > 10 ? 2 : cell > 5 ? 1 : 0.5;
  c.textAlign = "left";
  c.font = `11px ${colours.font}`;
  c.fillStyle = colours.muted;
  haloText(c, poolWords(trace), 0, POOL_TOP - 12, colours.panel);
  for (const block of grid.blocks) {
    const { x, y } = grid.at(block);
    const turn = order.get(block);
    const side = cell - gap;
    roundRect(c, x, y, side, side, Math.min(5, side / 4));
    if (turn !== undefined && turn < at) {
      fillPage(scene, block, x, y, side, turn === at - 1);
    } else if (own.has(block)) {
      c.strokeStyle = hue;
      c.lineWidth = 1.5;
      c.stroke();
    } else {
      c.fillStyle = colours["panel-2"];
      c.fill();
      c.strokeStyle = colours.border;
      c.lineWidth = 0.7;
      c.stroke();
    }
    if (cell >= 22) nameBlock(scene, block, x + side / 2, y + side / 2, turn);
  }
}

/**
 * A page that has been read, as full as it has tokens; the latest one is lit.
 * @param {Scene} scene @param {number} block @param {number} x @param {number} y
 * @param {number} side @param {boolean} latest
 */
function fillPage({ c, trace, colours, hue }, block, x, y, side, latest) {
  const full = side * (tokensIn(trace, block) / trace.block_size);
  c.save();
  c.clip();
  c.globalAlpha = 0.18;
  c.fillStyle = hue;
  c.fillRect(x, y, side, side);
  c.globalAlpha = 1;
  c.fillStyle = latest ? colours.event : hue;
  c.fillRect(x, y + side - full, side, full);
  c.restore();
  if (!latest) return;
  roundRect(c, x - 1, y - 1, side + 2, side + 2, Math.min(6, side / 4));
  c.strokeStyle = colours.event;
  c.lineWidth = 2;
  c.stroke();
}

/**
 * @param {Scene} scene @param {number} block @param {number} x @param {number} y
 * @param {number | undefined} turn
 */
function nameBlock({ c, trace, colours, at }, block, x, y, turn) {
  const read = turn !== undefined && turn < at;
  const solid = read && tokensIn(trace, block) === trace.block_size;
  c.textAlign = "center";
  c.font = `${read ? 600 : 450} 10.5px ${colours.mono}`;
  c.fillStyle = solid
    ? onRequestColour(colours.theme)
    : trace.blocks.includes(block)
      ? colours.text
      : colours.faint;
  if (read && !solid) haloText(c, String(block), x, y + 0.5, colours.panel);
  else c.fillText(String(block), x, y + 0.5);
}

/** The block table, the entry at hand lit and tied to its page. @param {Scene} scene */
function drawTable(scene) {
  const { c, trace, program, at, colours, width, grid, hue } = scene;
  const latest = at > 0 ? program.visits[at - 1].block : -1;
  const now = Math.max(0, trace.blocks.indexOf(latest));
  const fits = Math.max(1, Math.floor(width / ENTRY.width));
  const most = Math.max(0, trace.blocks.length - fits);
  const from = Math.min(most, Math.max(0, now - Math.round(fits * 0.6)));
  const shown = trace.blocks.slice(from, from + fits);
  const read = new Set(program.visits.slice(0, at).map((visit) => visit.block));
  c.textAlign = "left";
  c.font = `11px ${colours.font}`;
  c.fillStyle = colours.muted;
  const cut = shown.length < trace.blocks.length;
  const range = cut
    ? `, entries ${from} to ${from + shown.length - 1} of ${trace.blocks.length}`
    : "";
  c.fillText(`block table of ${trace.request}${range}: entry → block`, 0, 7);
  shown.forEach((block, i) => {
    const x = i * ENTRY.width;
    const isNow = block === latest;
    roundRect(c, x, ENTRY.top, ENTRY.width - 4, ENTRY.height, 5);
    c.globalAlpha = read.has(block) ? 1 : 0.12;
    c.fillStyle = isNow ? colours.event : hue;
    c.fill();
    c.globalAlpha = 1;
    c.textAlign = "center";
    c.font = `600 11.5px ${colours.mono}`;
    c.fillStyle = read.has(block) ? onRequestColour(colours.theme) : colours.text;
    c.fillText(String(block), x + (ENTRY.width - 4) / 2, ENTRY.top + ENTRY.height / 2 + 0.5);
    c.font = `9.5px ${colours.mono}`;
    c.fillStyle = colours.muted;
    c.fillText(String(from + i), x + (ENTRY.width - 4) / 2, ENTRY.top + ENTRY.height + 8);
    if (isNow) tie(c, x + (ENTRY.width - 4) / 2, grid.at(block), grid.cell, colours);
  });
}

/**
 * From an entry of the table to its page.
 * @param {CanvasRenderingContext2D} c @param {number} x @param {{x: number, y: number}} to
 * @param {number} cell @param {Palette} colours
 */
function tie(c, x, to, cell, colours) {
  const top = ENTRY.top + ENTRY.height + 15;
  const end = { x: to.x + cell / 2 - 1, y: to.y - 2 };
  c.strokeStyle = colours.event;
  c.lineWidth = 1.8;
  c.beginPath();
  c.moveTo(x, top);
  c.bezierCurveTo(x, top + 26, end.x, end.y - 26, end.x, end.y);
  c.stroke();
}
