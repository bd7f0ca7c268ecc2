// @ts-check
/** The flattened batch: one row a token. */
import { hasTexts, pieceAt } from "../core/tokens.js";
import { onRequestColour, requestColour } from "../words/colours.js";
import { plural, visible } from "../words/format.js";
import { GRAPH, rowText, slotText } from "../words/graph.js";
import { Plane, fit, roundRect } from "./canvas.js";
import { shownRequest } from "./cursor.js";
import { Tip } from "./parts.js";

/** @import { Store } from "../core/store.js" */
/** @import { DraftRow, Model } from "./graph_model.js" */

export const LABELS = 62;
const LANES = { who: 20, token: 26, position: 18, slot: 24, out: 20 };

/** @type {Record<string, string>} */
const DRAFT_ROWS = {
  pending: "not a token of it yet: this forward also says whether it will be",
  accepted: "accepted: a token of it now",
  rejected: "rejected: what was sampled in the row before stands in its place",
  unjudged: "behind a rejected draft: it counts for nothing",
};

export class BatchStrip {
  /** @param {Store} store @param {HTMLElement} root */
  constructor(store, root) {
    this.store = store;
    this.plane = new Plane(GRAPH.flattened, "gbp-batch");
    this.tip = new Tip(root);
    /** @type {Model["batch"]} */
    this.batch = null;
    this.padding = 0;
    this.cell = 20;
    this.plane.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.plane.canvas.addEventListener("mouseleave", () => this.tip.hide());
    this.plane.canvas.addEventListener("click", (event) => {
      const found = this.find(event);
      if (found) store.select({ request: found.request.id });
    });
  }

  /**
   * @param {Model["batch"]} batch @param {any} colours @param {number} width
   * @param {number} padding rows that fill a graph's size up
   */
  draw(batch, colours, width, padding) {
    this.batch = batch;
    this.padding = padding;
    const lanes = LANES;
    const height = lanes.who + lanes.token + lanes.position + lanes.slot + lanes.out + 6;
    const c = this.plane.begin(width, batch && batch.ids.length ? height : 0);
    if (!batch || batch.ids.length === 0) return;
    this.cell = Math.min(72, (width - LABELS - 2) / (batch.ids.length + padding));
    c.textBaseline = "middle";
    let y = 0;
    this.lane(c, "rows of", y + lanes.who / 2, colours);
    this.drawWho(c, batch, y, colours);
    y += lanes.who;
    this.lane(c, "token", y + lanes.token / 2, colours);
    this.drawTokens(c, batch, y, colours);
    y += lanes.token;
    this.lane(c, "position", y + lanes.position / 2, colours);
    this.drawPositions(c, batch, y, colours);
    y += lanes.position;
    this.lane(c, "KV slot", y + lanes.slot / 2, colours);
    this.drawSlots(c, batch, y, colours);
    if (padding > 0) this.drawPadding(c, batch.ids.length, padding, colours);
    y += lanes.slot + 2;
    if (!batch.requests.some((request) => request.sampled.length > 0)) return;
    this.lane(c, "sampled", y + lanes.out / 2, colours);
    this.drawSampled(c, batch, y, colours);
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {string} name @param {number} y @param {any} colours
   */
  lane(c, name, y, colours) {
    c.font = `11.5px ${colours.font}`;
    c.textAlign = "left";
    c.fillStyle = colours.muted;
    c.fillText(name, 0, y);
  }

  /** @param {number} row */
  x(row) {
    return LABELS + row * this.cell;
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {NonNullable<Model["batch"]>} batch
   * @param {number} y @param {any} colours
   */
  drawWho(c, batch, y, colours) {
    const chosen = shownRequest(this.store);
    c.textAlign = "left";
    for (const request of batch.requests) {
      const colour = requestColour(request.id, colours.theme);
      const x = this.x(request.first);
      const w = (request.end - request.first) * this.cell;
      c.fillStyle = colour;
      c.fillRect(x + 0.5, y + 16, w - 1, 2);
      if (w <= 14) continue;
      const font = `${request.id === chosen ? 700 : 500} 11px ${colours.mono}`;
      c.font = font;
      const rows = request.end - request.first;
      const text =
        rows > 1 ? `${request.id}: rows ${request.first}–${request.end - 1}` : request.id;
      c.fillText(fit(c, text, w - 2, font), x + 1, y + 8);
    }
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {NonNullable<Model["batch"]>} batch
   * @param {number} y @param {any} colours
   */
  drawTokens(c, batch, y, colours) {
    const gap = this.cell > 6 ? 1.5 : this.cell > 3 ? 0.5 : 0;
    for (const request of batch.requests) {
      c.fillStyle = requestColour(request.id, colours.theme);
      this.fillRows(c, request, y + 2, gap);
      for (const draft of request.drafts) this.drawDraft(c, draft, y, gap, colours);
      if (this.cell < 15) continue;
      c.fillStyle = onRequestColour(colours.theme);
      c.font = `${this.cell > 24 ? 10.5 : 9}px ${colours.mono}`;
      c.textAlign = "center";
      const known = request.end - request.drafts.length;
      for (let row = request.first; row < request.end; row += 1) {
        const draft = row >= known ? request.drafts[row - known] : null;
        const text =
          draft?.text || (this.text(request.id, batch.positions[row]) ?? String(batch.ids[row]));
        c.fillStyle = draft ? colours.text : onRequestColour(colours.theme);
        const words = visible(text.trim() || text);
        const room = this.cell - 4;
        // In a narrow cell an ellipsis would cost half of what can be read.
        const shown = this.cell < 34 ? words.slice(0, Math.floor(room / 5.5)) : fit(c, words, room);
        c.fillText(shown, this.x(row) + this.cell / 2, y + 13.5);
      }
    }
  }

  /**
   * A request's rows, all at once: of a long prompt there are hundreds.
   * @param {CanvasRenderingContext2D} c @param {{first: number, end: number}} rows
   * @param {number} y @param {number} gap between them; 0: none can be told from the next
   */
  fillRows(c, { first, end }, y, gap) {
    const w = Math.max(0.6, this.cell - gap);
    c.beginPath();
    if (!gap) c.rect(this.x(first), y, (end - first) * this.cell, 22);
    else if (this.cell > 8)
      for (let row = first; row < end; row += 1) c.roundRect(this.x(row) + gap / 2, y, w, 22, 3);
    else for (let row = first; row < end; row += 1) c.rect(this.x(row) + gap / 2, y, w, 22);
    c.fill();
  }

  /**
   * A row of a draft has a dashed frame instead of a filled one; a verdict colours it.
   * @param {CanvasRenderingContext2D} c @param {DraftRow} draft
   * @param {number} y @param {number} gap @param {any} colours
   */
  drawDraft(c, draft, y, gap, colours) {
    const [x, w] = [this.x(draft.row) + gap / 2, Math.max(0.6, this.cell - gap)];
    const own = c.fillStyle;
    c.fillStyle = colours.panel;
    c.fillRect(x, y + 1, w, 24);
    const { verdict } = draft;
    const struck = verdict === "rejected" || verdict === "unjudged";
    c.fillStyle = struck ? colours.bad : verdict === "accepted" ? colours.ok : own;
    c.strokeStyle = c.fillStyle;
    c.globalAlpha = 0.22;
    roundRect(c, x, y + 2, w, 22, this.cell > 8 ? 3 : 0);
    c.fill();
    c.globalAlpha = 1;
    c.setLineDash(verdict === "accepted" ? [] : [3, 2]);
    roundRect(c, x + 0.5, y + 2.5, Math.max(0.6, w - 1), 21, this.cell > 8 ? 3 : 0);
    c.stroke();
    c.setLineDash([]);
    if (struck) {
      c.beginPath();
      c.moveTo(x + 2, y + 13);
      c.lineTo(x + w - 2, y + 13);
      c.stroke();
    }
    c.fillStyle = own;
  }

  /**
   * The text of a request's token at a position, where it is known.
   * @param {string} id @param {number} position
   */
  text(id, position) {
    const request = this.store.state?.requests?.[id];
    return request && hasTexts(request) ? pieceAt(request, position) : undefined;
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {NonNullable<Model["batch"]>} batch
   * @param {number} y @param {any} colours
   */
  drawPositions(c, batch, y, colours) {
    c.font = `${this.cell >= 24 ? 10.5 : 9.5}px ${colours.mono}`;
    c.fillStyle = colours.muted;
    c.textAlign = "center";
    const letter = c.measureText("0").width; // as wide as all of its font
    for (const request of batch.requests) {
      const rows = request.end - request.first;
      const last = batch.positions[request.end - 1];
      if (this.cell >= 8 * String(last).length) {
        for (let row = request.first; row < request.end; row += 1) {
          c.fillText(String(batch.positions[row]), this.x(row) + this.cell / 2, y + 9);
        }
      } else {
        const text = rows > 1 ? `${batch.positions[request.first]}–${last}` : String(last);
        if (text.length * letter < rows * this.cell)
          c.fillText(text, this.x(request.first) + (rows * this.cell) / 2, y + 9);
      }
    }
  }

  /**
   * Rows whose KV goes to the same block.
   * @param {CanvasRenderingContext2D} c @param {NonNullable<Model["batch"]>} batch
   * @param {number} y @param {any} colours
   */
  drawSlots(c, batch, y, colours) {
    c.font = `10.5px ${colours.mono}`;
    c.textAlign = "center";
    const letter = c.measureText("0").width; // as wide as all of its font
    const runs = slotRuns(batch).map((run) => {
      const offset = run.from === run.to ? `${run.from}` : `${run.from}–${run.to}`;
      return { ...run, w: (run.end - run.first) * this.cell, slots: `${run.block}: ${offset}` };
    });
    for (const { id } of batch.requests) {
      const own = runs.filter((run) => run.request === id);
      c.fillStyle = c.strokeStyle = requestColour(id, colours.theme);
      c.globalAlpha = 0.16;
      this.outline(c, own, y + 2, 20, 1);
      c.fill();
      c.globalAlpha = 1;
      this.outline(c, own, y + 2.5, 19, 1.5);
      c.stroke();
    }
    /** @param {string} words @param {number} w */
    const fits = (words, w) => words.length * letter < w - 5;
    // What is as narrow as one that has no room for the word "block" does without it as well.
    const narrow = runs.filter(({ w, slots }) => !fits(`block ${slots}`, w)).map(({ w }) => w);
    const named = Math.max(0, ...narrow);
    c.fillStyle = colours.text;
    for (const run of runs) {
      const { w, slots } = run;
      const x = this.x(run.first);
      const words = w > named ? [`block ${slots}`] : [slots, `${run.block}`];
      const text = words.find((each) => fits(each, w));
      if (text) c.fillText(text, x + w / 2, y + 12.5);
    }
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {{first: number, end: number}[]} runs of rows
   * @param {number} y @param {number} h @param {number} inset at both ends
   */
  outline(c, runs, y, h, inset) {
    c.beginPath();
    for (const { first, end } of runs) {
      const w = Math.max(1, (end - first) * this.cell - 2 * inset);
      c.roundRect(this.x(first) + inset, y, w, h, Math.min(4, w / 2));
    }
  }

  /**
   * Rows of padding: token 0 at position 0, whose KV goes to block 0.
   * @param {CanvasRenderingContext2D} c @param {number} first @param {number} rows
   * @param {any} colours
   */
  drawPadding(c, first, rows, colours) {
    const { who, token, position } = LANES;
    c.textAlign = "center";
    c.fillStyle = colours.muted;
    c.strokeStyle = colours.muted;
    c.setLineDash([3, 3]);
    for (let row = first; row < first + rows; row += 1) {
      const x = this.x(row);
      const middle = x + this.cell / 2;
      roundRect(c, x + 1.5, who + 2.5, Math.max(1, this.cell - 3), 21, 3);
      c.stroke();
      roundRect(c, x + 1.5, who + token + position + 2.5, Math.max(1, this.cell - 3), 19, 4);
      c.stroke();
      if (this.cell < 16) continue;
      c.font = `10.5px ${colours.mono}`;
      c.fillText(fit(c, "padding", this.cell - 5), middle, who + 13.5);
      c.fillText(fit(c, "block 0", this.cell - 5), middle, who + token + position + 12.5);
    }
    c.setLineDash([]);
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {NonNullable<Model["batch"]>} batch
   * @param {number} y @param {any} colours
   */
  drawSampled(c, batch, y, colours) {
    c.textAlign = "center";
    const font = `600 10.5px ${colours.mono}`;
    c.font = font;
    for (const request of batch.requests) {
      for (const { row, text } of request.sampled) {
        const x = this.x(row) + this.cell / 2;
        c.fillStyle = colours.event;
        c.beginPath();
        c.moveTo(x - 4, y + 1);
        c.lineTo(x + 4, y + 1);
        c.lineTo(x, y + 6);
        c.fill();
        c.fillStyle = requestColour(request.id, colours.theme);
        const room = request.sampled.length > 1 ? this.cell : Math.max(this.cell, 30);
        const words = visible(text).trim() || visible(text);
        if (this.cell >= 18) c.fillText(fit(c, words, room - 2, font), x, y + 13);
      }
    }
  }

  /** @param {MouseEvent} event */
  find(event) {
    const row = Math.floor((this.plane.at(event).x - LABELS) / this.cell);
    const request = this.batch?.requests.find(
      (/** @type {any} */ item) => row >= item.first && row < item.end,
    );
    return request ? { row, request } : null;
  }

  /** @param {MouseEvent} event */
  hoverPadding(event) {
    const row = Math.floor((this.plane.at(event).x - LABELS) / this.cell);
    const first = this.batch?.ids.length ?? 0;
    if (row < first || row >= first + this.padding) return this.tip.hide();
    this.tip.show(event, [rowText(row), ...GRAPH.padding]);
  }

  /** @param {MouseEvent} event */
  hover(event) {
    const found = this.find(event);
    const { batch } = this;
    if (!found || !batch) return this.hoverPadding(event);
    const { row, request } = found;
    const slot = batch.slots[row];
    const draft = request.drafts.find((/** @type {any} */ each) => each.row === row);
    this.tip.show(event, [
      rowText(row, `${request.id}${draft ? ", a draft" : ""}`),
      ...(draft ? [DRAFT_ROWS[draft.verdict]] : []),
      `input id ${batch.ids[row]}, position ${batch.positions[row]}`,
      slotText(slot, batch.blockSize),
      `${request.id} has ${plural(request.seqLen, "token")} of KV after this step`,
      "measured: inputs_prepared",
    ]);
  }
}

/**
 * What a table of the batch says of each row.
 * @param {Model["batch"]} batch @returns {string[][]}
 */
export function batchRows(batch) {
  if (!batch) return [];
  return batch.requests.flatMap(({ id, first, end, drafts, sampled }) =>
    Array.from({ length: end - first }, (_, i) => {
      const row = first + i;
      const draft = drafts.find((/** @type {any} */ each) => each.row === row);
      const chosen = sampled.find((/** @type {any} */ each) => each.row === row);
      const slot = batch.slots[row];
      return [
        String(row),
        draft ? `${id}, a draft` : id,
        String(batch.ids[row]),
        String(batch.positions[row]),
        `block ${Math.floor(slot / batch.blockSize)}, slot ${slot % batch.blockSize}`,
        chosen ? visible(chosen.text) : "",
      ];
    }),
  );
}

/**
 * @typedef {{request: string, block: number, first: number, end: number, from: number, to: number}}
 *   SlotRun rows of one request whose KV goes to the same block
 */

/** @param {NonNullable<Model["batch"]>} batch @returns {SlotRun[]} */
function slotRuns(batch) {
  /** @type {SlotRun[]} */
  const runs = [];
  for (const request of batch.requests) {
    for (let row = request.first; row < request.end; row += 1) {
      const block = Math.floor(batch.slots[row] / batch.blockSize);
      const offset = batch.slots[row] % batch.blockSize;
      const last = runs[runs.length - 1];
      if (last && last.request === request.id && last.block === block && row > request.first) {
        last.end = row + 1;
        last.to = offset;
      } else
        runs.push({
          request: request.id,
          block,
          first: row,
          end: row + 1,
          from: offset,
          to: offset,
        });
    }
  }
  return runs;
}
