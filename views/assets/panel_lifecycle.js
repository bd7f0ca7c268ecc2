// @ts-check
/**
 * Prefill & decode lifecycle: requests over steps against the token budget, and their text.
 *
 * `model` says what is to be seen, from the log alone; the rest of the file draws it.
 */

import { el, reconcile, setAttribute, setText } from "./dom.js";
import { count, micros, onRequestColour, plural, requestColour } from "./format.js";
import {
  Plane,
  Sentence,
  Tip,
  Twin,
  atCursor,
  fit,
  legend,
  redrawOnChange,
  roundRect,
  section,
  seekStep,
  sentenceOf,
  shownRequest,
  stepOf,
} from "./panel_parts.js";
import { reasonPhrase } from "./sentences.js";
import { timing, traceIndex } from "./trace_index.js";

export const VIEW = "request-lifecycle";

const MAX_STREAMS = 8;
const MAX_PIECES = 240;

// --- model --------------------------------------------------------------------------------------

/** @typedef {import("./trace_index.js").TraceIndex} TraceIndex */
/** @typedef {import("./trace_index.js").Row} Row */
/**
 * @typedef {"prefill" | "decode" | "taken-back" | "submitted" | "waiting" | "preempted" | "idle"} CellKind
 */
/**
 * @typedef {Object} Cell one request in one step
 * @property {number} step
 * @property {CellKind | null} kind
 * @property {boolean} future recorded, but after the cursor
 * @property {number} seq of the event it comes from
 * @property {number} [tokens]
 * @property {number} [from]
 * @property {number} [known]
 * @property {string} [why]
 * @property {string} [stopped] it was the head of the queue and was not admitted
 * @property {string} [passedOver]
 * @property {string} [lost] it was preempted in this step
 * @property {{finish: string, why: string}} [end]
 */

/**
 * @param {any} store
 * @param {{from: number, to: number}} [window] steps wanted; all by default
 */
export function model(store, window) {
  const index = traceIndex(store);
  const { step, share, command } = atCursor(store);
  const empty = index.steps.size === 0;
  const from = Math.max(window?.from ?? -Infinity, empty ? 0 : index.firstStep);
  const to = Math.min(window?.to ?? Infinity, empty ? -1 : index.lastStep);
  return {
    view: VIEW,
    sentence: sentenceOf(store, VIEW),
    budget: store.header?.config?.max_num_batched_tokens ?? 0,
    step,
    share,
    command,
    from,
    to,
    steps: budgetBars(store, index, from, to),
    rows: rowsOf(store, index, from, to),
    streams: streamsOf(store, index),
    requests: Object.keys(store.state?.requests ?? {}).length,
  };
}

/** @param {any} store @param {TraceIndex} index @param {number} from @param {number} to */
function budgetBars(store, index, from, to) {
  const bars = [];
  for (let step = from; step <= to; step += 1) {
    const facts = index.steps.get(step);
    if (!facts) continue;
    const shares = facts.shares.filter((share) => !isTakenBack(share, store.cursor));
    bars.push({
      step,
      future: facts.shares.length > 0 && facts.shares[0].i > store.cursor,
      segments: shares.map((share) => ({
        request: share.request,
        tokens: share.tokens,
        kind: share.kind,
        future: share.i > store.cursor,
      })),
    });
  }
  return bars;
}

/** @param {import("./trace_index.js").Share} share @param {number} cursor */
function isTakenBack(share, cursor) {
  return share.takenBack !== undefined && (share.takenBack <= cursor || share.i > cursor);
}

/** @param {any} store @param {TraceIndex} index @param {number} from @param {number} to */
function rowsOf(store, index, from, to) {
  const base = store.header?.base_seq ?? 0;
  const at = stepOf(store);
  const chosen = store.selection?.request ?? null;
  const rows = [];
  for (const row of index.rows.values()) {
    const first = row.changes[0];
    if (!first || first.step > to || (row.end && row.end.step < from)) continue;
    const cells = [];
    for (let step = Math.max(from, first.step); step <= to; step += 1) {
      if (row.end && step > row.end.step) break;
      cells.push(cellAt(index, row, step, store.cursor, at, base));
    }
    rows.push({ id: row.id, selected: row.id === chosen, cells });
  }
  return rows;
}

/**
 * @param {TraceIndex} index @param {Row} row @param {number} step @param {number} cursor
 * @param {number} at the cursor's step @param {number} base
 * @returns {Cell}
 */
function cellAt(index, row, step, cursor, at, base) {
  const share = row.shares.get(step);
  const change = index.statusAt(row, step);
  const i = share ? share.i : (change?.i ?? -1);
  /** @type {Cell} */
  const cell = { step, kind: null, future: i > cursor || step > at, seq: base + i };
  if (share) {
    cell.kind = isTakenBack(share, cursor) ? "taken-back" : share.kind;
    cell.tokens = share.tokens;
    cell.from = share.from;
    cell.known = share.known;
    cell.why = reasonPhrase(share.reason);
  } else if (change && change.status !== "finished") {
    cell.kind = change.status === "running" ? "idle" : change.status;
  }
  const stopped = row.stopped.get(step);
  if (stopped) cell.stopped = reasonPhrase(stopped.reason);
  const passed = row.passedOver.get(step);
  if (passed) cell.passedOver = reasonPhrase(passed.reason);
  const lost = row.preempted.get(step);
  if (lost && (lost.i <= cursor || cell.future)) cell.lost = preemptedBy(lost);
  if (row.end?.step === step && (row.end.i <= cursor || cell.future)) {
    cell.end = { finish: row.end.facts.finish_reason ?? "", why: reasonPhrase(row.end.reason) };
  }
  return cell;
}

/** @param {import("./trace_index.js").Mark} mark */
function preemptedBy(mark) {
  const why = reasonPhrase(mark.reason);
  return [mark.facts.by ? `for ${mark.facts.by}` : "", why].filter(Boolean).join(": ");
}

/**
 * The requests whose text is shown: the selected one, then those alive, then the last that ended.
 */
function streamsOf(/** @type {any} */ store, /** @type {TraceIndex} */ index) {
  const requests = store.state?.requests ?? {};
  const chosen = store.selection?.request;
  const ids = [...index.rows.keys()].filter((id) => requests[id]);
  const rank = (/** @type {string} */ id) => {
    if (id === chosen) return 0;
    return requests[id].status === "finished" ? 2 : 1;
  };
  const alive = ids.filter((id) => rank(id) < 2).sort((a, b) => rank(a) - rank(b));
  const ended = ids.filter((id) => rank(id) === 2).reverse();
  return [...alive, ...ended]
    .slice(0, MAX_STREAMS)
    .map((id) => streamOf(store, index, id, requests[id]));
}

/** @param {any} store @param {TraceIndex} index @param {string} id @param {any} request */
function streamOf(store, index, id, request) {
  const row = index.row(id);
  const step = stepOf(store);
  const share = row.shares.get(step);
  const current = share && share.i <= store.cursor && !isTakenBack(share, store.cursor);
  const outputs = request.output_token_ids ?? {};
  const pieces = request.output_pieces ?? {};
  const stopped = row.stopped.get(step);
  return {
    id,
    status: request.status,
    why:
      request.status === "finished"
        ? (row.end && row.end.i <= store.cursor && reasonPhrase(row.end.reason)) || ""
        : (stopped && stopped.i <= store.cursor && reasonPhrase(stopped.reason)) || "",
    finish: request.finish_reason ?? "",
    prompt: request.prompt_pieces ?? (request.prompt_token_ids ?? []).map(String),
    asIds: !request.prompt_pieces,
    numPrompt: request.num_prompt_tokens ?? 0,
    hit: request.hit_tokens ?? 0,
    computed: request.num_computed_tokens ?? 0,
    known: request.num_tokens ?? 0,
    maxTokens: request.max_tokens ?? 0,
    preemptions: request.num_preemptions ?? 0,
    output: Object.keys(outputs).map(
      (place) => pieces[place] ?? (request.prompt_pieces ? "" : String(outputs[place])),
    ),
    now: current ? { from: share.from, to: share.from + share.tokens } : null,
    newOutput: row.tokens.filter((token) => token.step === step && token.i <= store.cursor).length,
    timing: timing(index, row, store.cursor),
  };
}

/** @typedef {ReturnType<typeof model>} Model */
/** @typedef {ReturnType<typeof streamOf>} Stream */

// --- words for a cell ---------------------------------------------------------------------------

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
function cellLines(id, cell) {
  const lines = [`${id} · step ${cell.step}`];
  if (cell.tokens !== undefined && cell.from !== undefined) {
    lines.push(
      `${KIND_WORDS[cell.kind ?? ""]}: ${plural(cell.tokens, "token")}, positions ${cell.from} to ${cell.from + cell.tokens - 1} of ${cell.known} known`,
    );
    if (cell.why) lines.push(cell.why);
  } else if (cell.kind) lines.push(KIND_WORDS[cell.kind]);
  if (cell.stopped) lines.push(`not admitted: ${cell.stopped}`);
  if (cell.passedOver) lines.push(`passed over: ${cell.passedOver}`);
  if (cell.lost !== undefined) lines.push(`preempted ${cell.lost}`);
  if (cell.end) lines.push(`finished: ${cell.end.why || cell.end.finish}`);
  lines.push(cell.future ? "recorded, after the cursor" : `measured: event ${cell.seq} of the log`);
  return lines;
}

// --- timeline -----------------------------------------------------------------------------------

const GUTTER = 84;
const RIGHT = 44;
const ROW = 24;
/** Where the bars stand on their canvas. */
export const BARS = { top: 16, height: 66 };
const AXIS = 22;
const FUTURE = 0.28;

class Timeline {
  /** @param {any} store @param {HTMLElement} root */
  constructor(store, root) {
    this.store = store;
    this.bars = new Plane("Tokens of each step against the budget", "gbp-bars");
    this.plane = new Plane("Requests over steps", "gbp-rows");
    this.plane.canvas.tabIndex = 0;
    this.scroll = el("div", { class: "gbp-scroll" }, this.bars.canvas, this.plane.canvas);
    this.tip = new Tip(root);
    this.from = 0;
    this.pan = 0;
    this.top = 0;
    this.inside = false;
    this.column = 20;
    /** @type {{id: string, step: number} | null} */
    this.hovered = null;
    /** @type {Model | null} */
    this.model = null;
    /** @type {Map<string, CanvasPattern>} */
    this.hatches = new Map();
    this.listen();
  }

  /** Which steps fit, so that the cursor's is among them. @param {number} width */
  window(width) {
    const index = traceIndex(this.store);
    const steps = Math.max(1, index.lastStep - index.firstStep + 1);
    const room = Math.max(60, width - GUTTER - RIGHT);
    this.column = Math.max(18, Math.min(34, Math.floor(room / Math.max(steps, 1))));
    const fits = Math.max(4, Math.floor(room / this.column));
    const step = stepOf(this.store);
    const first = index.steps.size ? index.firstStep : 0;
    const latest = Math.max(first, index.lastStep - fits + 1);
    if (step !== this.lastStep) this.pan = 0;
    this.lastStep = step;
    if (step < this.from + 1 || step > this.from + fits - 2)
      this.from = step - Math.round(fits * 0.72);
    this.from = Math.max(first, Math.min(latest, this.from));
    const from = Math.max(first, Math.min(latest, this.from + Math.round(this.pan)));
    return { from, to: from + fits - 1 };
  }

  /** @param {number} step */
  x(step) {
    return GUTTER + (step - this.shownFrom) * this.column;
  }

  shownFrom = 0;

  /**
   * @param {Model} model @param {import("./panel_parts.js").Palette} colours @param {number} width
   * @param {{from: number, to: number}} window @param {number} height of what is in view
   */
  draw(model, colours, width, window, height) {
    this.model = model;
    this.shownFrom = window.from;
    this.shownTo = window.to;
    this.colours = colours;
    this.drawBars(model, colours, width);
    this.drawRows(model, colours, width);
    if (!this.inside) this.showAlive(model, height);
  }

  /**
   * Scroll so that those who are alive at the cursor are in view.
   * @param {Model} model @param {number} height
   */
  showAlive(model, height) {
    const alive = (/** @type {Model["rows"][0]} */ row) =>
      row.cells.some((cell) => cell.step === model.step && cell.kind !== null && !cell.future);
    const last = model.rows.findLastIndex(alive);
    const wanted = Math.max(0, (last + 2) * ROW - (height - this.bars.height));
    const first = Math.max(0, model.rows.findIndex(alive) * ROW);
    if (last < 0 || (this.top >= wanted && this.top <= first)) return;
    this.top = Math.min(wanted, first);
    this.scroll.scrollTop = this.top;
  }

  /** @param {Model} model @param {any} colours @param {number} width */
  drawBars(model, colours, width) {
    const { top, height } = BARS;
    const bottom = top + height;
    const whole = bottom + AXIS + 2;
    const c = this.bars.begin(width, whole);
    const right = width - 4;
    this.band(c, model, colours, 0, whole);
    c.font = `11px ${colours.font}`;
    c.textBaseline = "middle";
    c.textAlign = "right";
    c.fillStyle = colours.muted;
    c.fillText("budget", GUTTER - 12, top + 1);
    c.font = `600 12px ${colours.mono}`;
    c.fillStyle = colours.text;
    c.fillText(count(model.budget), GUTTER - 12, top + 16);
    c.strokeStyle = colours.border;
    c.lineWidth = 1;
    line(c, GUTTER, bottom + 0.5, right, bottom + 0.5);
    for (const bar of model.steps) this.drawBar(c, bar, model, colours, top, height);
    c.globalAlpha = 1;
    c.strokeStyle = colours.muted;
    c.setLineDash([5, 4]);
    line(c, GUTTER, top + 0.5, right, top + 0.5);
    c.setLineDash([]);
    this.drawAxis(c, model, colours, bottom, right);
    this.playhead(c, model, colours, top - 8, whole);
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Model["steps"][0]} bar @param {Model} model
   * @param {any} colours @param {number} top @param {number} height
   */
  drawBar(c, bar, model, colours, top, height) {
    const w = Math.max(3, this.column - 3);
    const x = this.x(bar.step) + (this.column - w) / 2;
    const scale = height / Math.max(1, model.budget);
    const given = bar.segments.reduce(
      (sum, segment) => sum + (segment.future ? 0 : segment.tokens),
      0,
    );
    let y = top + height;
    let slivers = 0;
    for (const segment of bar.segments) {
      const h = segment.tokens * scale;
      y -= h;
      if (h < 1) {
        slivers += h; // too thin to be told apart: drawn as one, at its true height
        continue;
      }
      this.drawSegment(
        c,
        x,
        y,
        w,
        h,
        slivers,
        segment.future,
        requestColour(segment.request, colours.theme),
        colours,
      );
      slivers = 0;
    }
    if (slivers > 0) this.drawSegment(c, x, y, w, 0, slivers, bar.future, "", colours);
    if (bar.step !== model.step || given === 0) return;
    c.globalAlpha = 1;
    c.font = `600 11px ${colours.mono}`;
    c.textAlign = "center";
    c.fillStyle = colours.text;
    c.fillText(count(given), x + w / 2, top - 8);
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} w
   * @param {number} h @param {number} slivers height of those below it @param {boolean} future
   * @param {string} colour @param {any} colours
   */
  drawSegment(c, x, y, w, h, slivers, future, colour, colours) {
    c.globalAlpha = future ? FUTURE : 1;
    if (slivers > 0) {
      c.fillStyle = colours.muted;
      c.fillRect(x, y + h, w, slivers);
    }
    if (h === 0) return;
    c.fillStyle = colour;
    c.fillRect(x, y, w, h > 3 ? h - 0.75 : h);
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Model} model @param {any} colours @param {number} y
   * @param {number} right
   */
  drawAxis(c, model, colours, y, right) {
    const every = this.column >= 28 ? 2 : this.column >= 18 ? 5 : 10;
    c.font = `10.5px ${colours.mono}`;
    c.textAlign = "center";
    for (let step = model.from; step <= model.to; step += 1) {
      if (step % every || step === model.step) continue;
      const x = this.x(step) + this.column / 2;
      if (x > right || Math.abs(step - model.step) * this.column < 26) continue;
      c.fillStyle = colours.muted;
      c.fillText(String(step), x, y + 14);
    }
    c.textAlign = "right";
    c.font = `11px ${colours.font}`;
    c.fillStyle = colours.muted;
    c.fillText("step", GUTTER - 12, y + 14);
    if (this.store.cursor < 0) return;
    const text = String(model.step);
    c.font = `600 10.5px ${colours.mono}`;
    const w = c.measureText(text).width + 12;
    const x = Math.max(
      GUTTER - w / 2,
      Math.min(right - w / 2, this.x(model.step) + this.column / 2 - w / 2),
    );
    c.fillStyle = colours.event;
    roundRect(c, x, y + 5, w, 17, 5);
    c.fill();
    c.fillStyle = colours.panel;
    c.textAlign = "center";
    c.fillText(text, x + w / 2, y + 14);
  }

  /** @param {Model} model @param {any} colours @param {number} width */
  drawRows(model, colours, width) {
    const height = Math.max(2, model.rows.length) * ROW + 8;
    const c = this.plane.begin(width, height);
    this.band(c, model, colours, 0, height);
    c.textBaseline = "middle";
    model.rows.forEach((row, place) => this.drawRow(c, row, place * ROW + 2, colours, width));
    c.globalAlpha = 1;
    if (model.rows.length) this.playhead(c, model, colours, 0, height);
  }

  /**
   * The cursor's step as a faint column.
   * @param {CanvasRenderingContext2D} c @param {Model} model @param {any} colours @param {number} y
   * @param {number} height
   */
  band(c, model, colours, y, height) {
    if (this.store.cursor < 0 || model.command) return;
    c.globalAlpha = 0.1;
    c.fillStyle = colours.event;
    c.fillRect(this.x(model.step), y, this.column, height);
    c.globalAlpha = 1;
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Model} model @param {any} colours @param {number} y
   * @param {number} height
   */
  playhead(c, model, colours, y, height) {
    if (this.store.cursor < 0) return;
    const x = this.x(model.step) + model.share * this.column;
    if (x < GUTTER - 1 || x > this.bars.width) return;
    c.globalAlpha = 1;
    c.strokeStyle = colours.event;
    c.lineWidth = 2;
    line(c, x, y, x, height);
    c.lineWidth = 1;
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Model["rows"][0]} row @param {number} y
   * @param {any} colours @param {number} width
   */
  drawRow(c, row, y, colours, width) {
    const colour = requestColour(row.id, colours.theme);
    const middle = y + ROW / 2;
    if (row.selected) {
      c.globalAlpha = 0.13;
      c.fillStyle = colour;
      roundRect(c, 2, y + 1, width - 4, ROW - 2, 5);
      c.fill();
    }
    c.globalAlpha = 1;
    c.strokeStyle = colours.border;
    c.lineWidth = 1;
    line(c, GUTTER, y + ROW - 0.5, width - 4, y + ROW - 0.5);
    c.font = `${row.selected ? 700 : 500} 12px ${colours.mono}`;
    c.textAlign = "right";
    c.fillStyle = colour;
    c.fillText(fit(c, row.id, GUTTER - 18), GUTTER - 12, middle);
    for (const cell of row.cells) this.drawCell(c, cell, row.id, colour, middle, colours);
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Cell} cell @param {string} id
   * @param {string} colour @param {number} y @param {any} colours
   */
  drawCell(c, cell, id, colour, y, colours) {
    const x = this.x(cell.step);
    const w = this.column;
    c.globalAlpha = cell.future ? FUTURE : 1;
    const draw = CELLS[cell.kind ?? ""];
    if (draw) draw(c, x, y, w, cell, colour, colours, this);
    if (cell.stopped !== undefined) {
      dot(c, x + w / 2, y, 4.6, colours.panel);
      dot(c, x + w / 2, y, 3.1, colours.text);
    }
    if (cell.passedOver !== undefined) ring(c, x + w / 2, y, 3.2, colours.text);
    if (cell.lost !== undefined) triangle(c, x + w / 2, y, colours.bad);
    if (cell.end) this.drawEnd(c, cell, x, y, colour, colours);
    if (this.hovered?.id === id && this.hovered.step === cell.step && cell.kind) {
      c.globalAlpha = 1;
      c.strokeStyle = colours.text;
      c.lineWidth = 1.25;
      roundRect(c, x + 0.5, y - 9.5, w - 1, 19, 4);
      c.stroke();
    }
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Cell} cell @param {number} x @param {number} y
   * @param {string} colour @param {any} colours
   */
  drawEnd(c, cell, x, y, colour, colours) {
    const at = x + this.column;
    c.fillStyle = cell.end?.finish === "abort" ? colours.bad : colour;
    roundRect(c, at - 1, y - 8, 3, 16, 1.5);
    c.fill();
    c.font = `11px ${colours.font}`;
    c.textAlign = "left";
    c.fillStyle = cell.end?.finish === "abort" ? colours.bad : colours.muted;
    c.fillText(cell.end?.finish ?? "", at + 6, y + 0.5);
  }

  /** A band of slanted lines. @param {CanvasRenderingContext2D} c @param {string} colour */
  hatch(c, colour) {
    const ratio = window.devicePixelRatio || 1;
    const key = `${colour} ${ratio}`;
    const known = this.hatches.get(key);
    if (known) return known;
    const size = Math.round(6 * ratio);
    const tile = document.createElement("canvas");
    tile.width = size;
    tile.height = size;
    const t = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
    t.strokeStyle = colour;
    t.lineWidth = 1.1 * ratio;
    for (const shift of [-size, 0, size]) line(t, shift - 1, size + 1, shift + size + 1, -1);
    const pattern = /** @type {CanvasPattern} */ (c.createPattern(tile, "repeat"));
    pattern.setTransform(new DOMMatrix().scale(1 / ratio));
    this.hatches.set(key, pattern);
    return pattern;
  }

  // -- pointer and keys --------------------------------------------------------------------------

  listen() {
    const canvas = this.plane.canvas;
    canvas.addEventListener("mousemove", (event) => this.hover(event));
    canvas.addEventListener("mouseleave", () => this.leave());
    canvas.addEventListener("click", (event) => this.click(event));
    canvas.addEventListener("keydown", (event) => this.key(event));
    this.bars.canvas.addEventListener("mousemove", (event) => this.hoverBar(event));
    this.bars.canvas.addEventListener("mouseleave", () => this.leave());
    this.bars.canvas.addEventListener("click", (event) => {
      seekStep(this.store, this.stepAt(this.bars.at(event).x));
    });
    this.scroll.addEventListener(
      "scroll",
      () => {
        this.top = this.scroll.scrollTop;
      },
      { passive: true },
    );
    this.scroll.addEventListener("mouseenter", () => {
      this.inside = true;
    });
    this.scroll.addEventListener("mouseleave", () => {
      this.inside = false;
    });
    this.scroll.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  /** @param {number} x */
  stepAt(x) {
    return this.shownFrom + Math.floor((x - GUTTER) / this.column);
  }

  /** @param {MouseEvent} event */
  find(event) {
    const { x, y } = this.plane.at(event);
    const row = this.model?.rows[Math.floor((y - 2) / ROW)];
    const step = x < GUTTER ? null : this.stepAt(x);
    return { row, cell: row?.cells.find((cell) => cell.step === step) };
  }

  /** @param {MouseEvent} event */
  hover(event) {
    const { row, cell } = this.find(event);
    const shown = row && cell && (cell.kind || cell.end);
    const before = this.hovered;
    this.hovered = shown ? { id: row.id, step: cell.step } : null;
    if (shown) this.tip.show(event, cellLines(row.id, cell));
    else this.tip.hide();
    this.plane.canvas.style.cursor = row ? "pointer" : "";
    if (before?.id !== this.hovered?.id || before?.step !== this.hovered?.step) this.redraw?.();
  }

  /** @param {MouseEvent} event */
  hoverBar(event) {
    const step = this.stepAt(this.bars.at(event).x);
    const bar = this.model?.steps.find((item) => item.step === step);
    if (!bar || !bar.segments.length) return this.tip.hide();
    const total = bar.segments.reduce((sum, segment) => sum + segment.tokens, 0);
    const lines = bar.segments
      .slice(0, 10)
      .map((segment) => `${segment.request}: ${segment.tokens} ${segment.kind}`);
    if (bar.segments.length > 10) lines.push(`and ${bar.segments.length - 10} more`);
    this.tip.show(event, [
      `Step ${step}: ${total} of ${count(this.model?.budget ?? 0)} tokens`,
      ...lines,
      "measured: request_scheduled events",
    ]);
  }

  leave() {
    this.tip.hide();
    if (!this.hovered) return;
    this.hovered = null;
    this.redraw?.();
  }

  /** @type {(() => void) | undefined} */
  redraw;

  /** @param {MouseEvent} event */
  click(event) {
    const { row, cell } = this.find(event);
    if (!row) return;
    this.store.select({ request: row.id });
    if (cell && (cell.kind || cell.end)) seekStep(this.store, cell.step);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const rows = this.model?.rows ?? [];
    const step = stepOf(this.store);
    const place = rows.findIndex((row) => row.selected);
    if (event.key === "ArrowLeft") seekStep(this.store, step - 1);
    else if (event.key === "ArrowRight") seekStep(this.store, step + 1);
    else if (event.key === "ArrowDown" && rows.length) {
      this.store.select({ request: rows[Math.min(rows.length - 1, place + 1)].id });
    } else if (event.key === "ArrowUp" && rows.length) {
      this.store.select({ request: rows[Math.max(0, place < 0 ? rows.length - 1 : place - 1)].id });
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Sideways: other steps. @param {WheelEvent} event */
  wheel(event) {
    const sideways = event.shiftKey ? event.deltaY : event.deltaX;
    if (Math.abs(sideways) < 1 || (!event.shiftKey && Math.abs(event.deltaY) > Math.abs(sideways)))
      return;
    event.preventDefault();
    this.pan += sideways / this.column;
    this.redraw?.();
  }
}

/**
 * @param {CanvasRenderingContext2D} c @param {number} x1 @param {number} y1 @param {number} x2
 * @param {number} y2
 */
function line(c, x1, y1, x2, y2) {
  c.beginPath();
  c.moveTo(x1, y1);
  c.lineTo(x2, y2);
  c.stroke();
}

/**
 * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} r
 * @param {string} colour
 */
function dot(c, x, y, r, colour) {
  c.fillStyle = colour;
  c.beginPath();
  c.arc(x, y, r, 0, 7);
  c.fill();
}

/**
 * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} r
 * @param {string} colour
 */
function ring(c, x, y, r, colour) {
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
function triangle(c, x, y, colour) {
  c.fillStyle = colour;
  c.beginPath();
  c.moveTo(x - 5, y - 5);
  c.lineTo(x + 5, y - 5);
  c.lineTo(x, y + 5);
  c.fill();
}

/**
 * @typedef {(c: CanvasRenderingContext2D, x: number, y: number, w: number, cell: Cell, colour: string, colours: any, timeline: Timeline) => void} CellDraw
 */
/** @type {Record<string, CellDraw>} */
const CELLS = {
  prefill(c, x, y, w, cell, colour, colours) {
    c.fillStyle = colour;
    roundRect(c, x + 1, y - 8, w - 2, 16, 3.5);
    c.fill();
    const text = String(cell.tokens);
    const size = Math.min(10.5, (w - 3.5) / (0.6 * text.length));
    if (size < 8) return;
    c.font = `600 ${size}px ${colours.mono}`;
    c.fillStyle = onRequestColour(colours.theme);
    c.textAlign = "center";
    c.fillText(text, x + w / 2, y + 0.5);
  },
  decode(c, x, y, w, _cell, colour) {
    c.strokeStyle = colour;
    const alpha = c.globalAlpha;
    c.globalAlpha = alpha * 0.35;
    line(c, x, y, x + w, y);
    c.globalAlpha = alpha;
    c.fillStyle = colour;
    roundRect(c, x + w / 2 - 2, y - 6.5, 4, 13, 2);
    c.fill();
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
  waiting(c, x, y, w, _cell, colour, _colours, timeline) {
    c.fillStyle = timeline.hatch(c, colour);
    c.fillRect(x, y - 4, w, 8);
  },
  preempted(c, x, y, w, _cell, colour, colours, timeline) {
    c.fillStyle = timeline.hatch(c, colour);
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

// --- text ---------------------------------------------------------------------------------------

/** One request's text as it comes, its tokens apart, and how long they took. */
class StreamCard {
  /** @param {any} store @param {string} id */
  constructor(store, id) {
    this.id = el("b", { class: "gbp-id", text: id });
    this.status = el("span", { class: "gbp-pill" });
    this.counts = el("span", { class: "gbp-num gbp-counts" });
    this.bar = el("div", { class: "gbp-progress", "aria-hidden": "true" });
    this.prompt = el("span", { class: "gbp-prompt" });
    this.output = el("span", { class: "gbp-output" });
    this.caret = el("span", { class: "gbp-caret", "aria-hidden": "true" });
    this.why = el("p", { class: "gbp-why" });
    this.times = el("dl", { class: "gbp-times" });
    const head = el(
      "button",
      { class: "gbp-card-head", type: "button" },
      this.id,
      this.status,
      this.counts,
    );
    head.addEventListener("click", () => store.select({ request: id }));
    this.head = head;
    this.element = el(
      "article",
      { class: "gbp-card" },
      head,
      this.bar,
      el(
        "div",
        { class: "gbp-text", tabindex: 0, role: "group", "aria-label": `Text of ${id}` },
        el("p", {}, this.prompt, this.output, this.caret),
      ),
      this.why,
      this.times,
    );
    this.promptKey = "";
    this.marksKey = "";
    /** @type {string[]} the output as it is shown */
    this.texts = [];
    /** @type {Element[]} */
    this.fresh = [];
    this.firstOutput = 0;
    /** @type {number[]} */
    this.places = [];
  }

  /** @param {Stream} stream @param {boolean} selected @param {string} theme */
  update(stream, selected, theme) {
    this.element.style.setProperty("--gbp-hue", requestColour(stream.id, theme));
    this.element.classList.toggle("is-selected", selected);
    setAttribute(this.head, "aria-pressed", String(selected));
    setText(
      this.status,
      stream.status === "finished" ? `finished: ${stream.finish}` : stream.status,
    );
    setAttribute(this.status, "data-status", stream.status);
    setText(this.counts, countsText(stream));
    this.counts.title = `measured: ${stream.numPrompt} prompt tokens, ${stream.hit} of them a prefix hit at the latest admission; ${stream.output.length} generated, at most ${stream.maxTokens}`;
    this.updateBar(stream);
    this.updatePrompt(stream);
    this.updateOutput(stream);
    this.markNow(stream);
    setText(this.why, stream.why);
    this.why.hidden = stream.why === "";
    this.updateTimes(stream);
  }

  /** @param {Stream} stream */
  updateBar(stream) {
    const whole = Math.max(1, stream.known);
    const now = stream.now ? stream.now.to - stream.now.from : 0;
    const before = Math.max(0, stream.computed - now);
    const hit = Math.min(stream.hit, before);
    const parts = [
      ["hit", hit],
      ["done", before - hit],
      ["now", Math.min(now, stream.computed)],
    ];
    reconcile(
      this.bar,
      parts,
      ([name]) => String(name),
      ([name]) => el("i", { class: `gbp-${name}` }),
      (node, [, size]) => {
        node.style.width = `${(Number(size) / whole) * 100}%`;
      },
    );
    this.bar.title = `derived: ${stream.computed} of ${stream.known} known tokens have KV (num_computed_tokens / num_tokens)`;
  }

  /** @param {Stream} stream */
  updatePrompt(stream) {
    const key = `${stream.prompt.length}`;
    if (key === this.promptKey) return;
    this.promptKey = key;
    this.marksKey = "";
    const pieces = shorten(stream.prompt);
    this.places = pieces.map(([place]) => place);
    this.prompt.classList.toggle("is-ids", stream.asIds);
    this.prompt.replaceChildren(
      ...pieces.map(([place, text]) =>
        el("span", {
          class: place < 0 ? "gbp-gap" : "gbp-tok",
          text: place < 0 ? text : visibleEnds(text),
        }),
      ),
    );
  }

  /** @param {Stream} stream */
  updateOutput(stream) {
    const first = Math.max(0, stream.output.length - MAX_PIECES);
    if (this.firstOutput !== first) {
      this.output.replaceChildren();
      this.texts = [];
      this.firstOutput = first;
    }
    this.output.classList.toggle("is-ids", stream.asIds);
    const wanted = stream.output.length - first;
    while (this.texts.length > wanted) {
      this.texts.pop();
      this.output.lastElementChild?.remove();
    }
    for (let k = 0; k < wanted; k += 1) {
      const text = stream.output[first + k];
      if (this.texts[k] === text) continue;
      const node =
        this.output.children[k] ?? this.output.appendChild(el("span", { class: "gbp-tok" }));
      node.textContent = visibleEnds(text);
      this.texts[k] = text;
    }
    for (const node of this.fresh) node.classList.remove("is-new");
    this.fresh = [];
    for (let k = Math.max(0, wanted - stream.newOutput); k < wanted; k += 1) {
      this.fresh.push(this.output.children[k]);
      this.output.children[k].classList.add("is-new");
    }
    this.caret.hidden = stream.status !== "running";
  }

  /** Which tokens were hit, are computed, are computed in this step. @param {Stream} stream */
  markNow(stream) {
    const key = `${stream.hit} ${stream.computed} ${stream.now?.from} ${stream.now?.to}`;
    if (key === this.marksKey) return;
    this.marksKey = key;
    const places = this.places ?? [];
    for (let k = 0; k < places.length; k += 1) {
      const place = places[k];
      const list = this.prompt.children[k].classList;
      if (place < 0) continue;
      const now = stream.now !== null && place >= stream.now.from && place < stream.now.to;
      list.toggle("is-hit", place < stream.hit);
      list.toggle("is-now", now);
      list.toggle("is-todo", place >= stream.computed && !now);
    }
  }

  /** @param {Stream} stream */
  updateTimes(stream) {
    const { ttft, itl } = stream.timing;
    const items = [];
    // A stepped or paced engine stands still between steps: then its own time stands beside it.
    const stood = (/** @type {{us: number, engineUs: number}} */ item) =>
      item.us > item.engineUs * 1.03;
    const what = (/** @type {{paused: boolean}} */ item) =>
      item.paused ? "pauses" : "waits between steps";
    const note = (/** @type {any} */ item) =>
      stood(item) ? `; the time includes the ${what(item)}` : "";
    const aside = (/** @type {any} */ item) =>
      stood(item) ? `with ${what(item)}; ${micros(item.engineUs)} in steps` : "";
    if (ttft) {
      items.push([
        "first token after",
        micros(ttft.us),
        "measured",
        `from request_submitted to the first token${note(ttft)}`,
        aside(ttft),
      ]);
    }
    if (itl) {
      items.push([
        "between tokens",
        micros(itl.us),
        "measured",
        `mean of ${itl.tokens - 1} gaps${note(itl)}`,
        aside(itl),
      ]);
    }
    reconcile(
      this.times,
      items,
      ([name]) => name,
      ([name]) =>
        el(
          "div",
          {},
          el("dt", { text: name }),
          el("dd", {}, el("span", { class: "gb-truth" }), el("small", { class: "gb-truth" })),
        ),
      (node, [, value, kind, how, more]) => {
        const [number, small] = node.lastChild.children;
        setText(number, value);
        number.dataset.truth = kind;
        number.title = `${kind}: ${how}`;
        setText(small, more);
        small.dataset.truth = "derived";
        small.title = "derived: the sum of the measured times of the phases in between";
      },
    );
  }
}

/** @param {Stream} stream */
function countsText(stream) {
  const prompt =
    stream.hit > 0
      ? `${count(stream.numPrompt)} prompt, ${count(stream.hit)} hit`
      : `${count(stream.numPrompt)} prompt`;
  const again = stream.preemptions ? ` · preempted ${stream.preemptions}×` : "";
  return `${prompt} · ${stream.output.length}/${stream.maxTokens} out${again}`;
}

/** A line end is shown and kept. @param {string} text */
function visibleEnds(text) {
  return text.includes("\n") ? text.replaceAll("\n", "⏎\n") : text === "" ? "\u200b" : text;
}

/**
 * A long prompt's beginning and end; the place of what stands between is -1.
 * @param {string[]} pieces @returns {[number, string][]}
 */
function shorten(pieces) {
  const all = pieces.map((text, place) => /** @type {[number, string]} */ ([place, text]));
  if (pieces.length <= MAX_PIECES) return all;
  const half = MAX_PIECES / 2;
  const left = pieces.length - 2 * half;
  return [...all.slice(0, half), [-1, ` … ${count(left)} more tokens … `], ...all.slice(-half)];
}

// --- panel --------------------------------------------------------------------------------------

class LifecyclePanel {
  /** @param {HTMLElement} root @param {any} store */
  constructor(root, store) {
    this.store = store;
    this.root = root;
    this.sentence = new Sentence(store, VIEW);
    this.element = el("div", { class: "gbp gbp-lifecycle" });
    this.timeline = new Timeline(store, this.element);
    this.cards = el("div", { class: "gbp-cards" });
    this.more = el("p", { class: "gbp-more" });
    this.empty = el("p", {
      class: "gbp-empty",
      text: "No request yet. Send a prompt above: its tokens, its waiting and its share of each step appear here.",
    });
    this.twin = new Twin(
      "Requests over steps, at the cursor",
      ["Request", "Status", "Computed", "Output", "Last shares"],
      () => this.twinRows(),
    );
    this.left = section(
      "Requests over steps, against the token budget",
      "timeline",
      this.timeline.scroll,
      lifecycleLegend(),
    );
    this.right = section("Tokens as text", "streams", this.cards, this.more, textLegend());
    this.element.append(
      this.sentence.element,
      this.empty,
      el("div", { class: "gbp-columns" }, this.left, this.right),
      this.twin.element,
    );
    root.append(this.element);
    /** @type {Map<string, StreamCard>} */
    this.known = new Map();
    this.key = "";
    this.redraw = redrawOnChange(this.element, (force) => this.update(force), [
      this.timeline.scroll,
    ]);
    this.timeline.redraw = this.redraw.again;
  }

  update(force = false) {
    const { store } = this;
    const index = traceIndex(store);
    const key = `${index.traceId} ${store.records.length} ${store.cursor} ${store.selection?.request}`;
    if (!force && key === this.key) return;
    this.key = key;
    const { width, height } = this.redraw.size(this.timeline.scroll);
    const window = this.timeline.window(width || 600);
    const data = model(store, window);
    const colours = this.redraw.colours.get();
    this.empty.hidden = data.rows.length > 0 || index.rows.size > 0;
    // Canvases first: a font set on a canvas makes the browser work through changed elements.
    if (width > 0) this.timeline.draw(data, colours, width, window, height);
    this.sentence.update();
    this.drawCards(data, colours.theme);
    this.timeline.plane.label(
      `Requests over steps: step ${data.step}, ${plural(data.rows.length, "request")} shown. Arrow keys move through steps and requests.`,
    );
    this.twin.later();
    this.data = data;
  }

  /** @param {Model} data @param {string} theme */
  drawCards(data, theme) {
    const chosen = shownRequest(this.store);
    reconcile(
      this.cards,
      data.streams,
      (stream) => stream.id,
      (stream) => {
        const card = new StreamCard(this.store, stream.id);
        this.known.set(stream.id, card);
        return card.element;
      },
      (_, stream) =>
        this.known
          .get(stream.id)
          ?.update(
            stream,
            stream.id === chosen && stream.id === this.store.selection?.request,
            theme,
          ),
    );
    for (const id of [...this.known.keys()]) {
      if (!data.streams.some((stream) => stream.id === id)) this.known.delete(id);
    }
    const hidden = data.requests - data.streams.length;
    setText(
      this.more,
      hidden > 0
        ? `and ${plural(hidden, "request")} more: select one in the timeline to read it`
        : "",
    );
    this.more.hidden = hidden <= 0;
  }

  twinRows() {
    const data = this.data;
    if (!data) return [];
    return data.rows.map((row) => {
      const request = this.store.state.requests?.[row.id];
      const past = row.cells.filter((cell) => !cell.future && cell.tokens !== undefined).slice(-4);
      return [
        row.id,
        request?.status ?? "not there yet",
        `${request?.num_computed_tokens ?? 0} of ${request?.num_tokens ?? 0}`,
        String(Object.keys(request?.output_token_ids ?? {}).length),
        past.map((cell) => `step ${cell.step}: ${cell.kind} of ${cell.tokens}`).join("; "),
      ];
    });
  }

  destroy() {
    this.redraw.destroy();
    this.twin.destroy();
    this.element.remove();
  }
}

function lifecycleLegend() {
  return legend([
    ["is-prefill", "prefill chunk, with its tokens"],
    ["is-decode", "decode, one token"],
    ["is-waiting", "waiting"],
    ["is-stopped", "next in line, not admitted"],
    ["is-preempted", "preempted"],
    ["is-end", "finished"],
    ["is-playhead", "cursor; fainter is recorded after it"],
  ]);
}

function textLegend() {
  return legend([
    ["is-hit", "prefix hit"],
    ["is-now", "computed in this step"],
    ["is-todo", "not computed yet"],
  ]);
}

/**
 * @param {HTMLElement} root @param {any} store
 * @returns {{update(): void, destroy(): void, panel: object}}
 */
export function mount(root, store) {
  const panel = new LifecyclePanel(root, store);
  panel.update(true);
  return { update: () => panel.update(), destroy: () => panel.destroy(), panel };
}
