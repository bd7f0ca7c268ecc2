// @ts-check
/**
 * CUDA graph & kernel execution: how a step's batch ran and why, and where its time went.
 *
 * Times are the engine's own clock. What attention read is derived from the block table, as its
 * event says; `model` gathers it all from the step's events, the rest of the file draws it.
 */

import { el, setText, svg } from "./dom.js";
import {
  bytes,
  count,
  micros,
  onRequestColour,
  percent,
  plural,
  ranges,
  requestColour,
  truth,
  visible,
} from "./format.js";
import {
  PHASES,
  Plane,
  Sentence,
  Tip,
  Twin,
  atCursor,
  fit,
  redrawOnChange,
  roundRect,
  section,
  seekStep,
  sentenceOf,
  shownRequest,
} from "./panel_parts.js";
import { reasonPhrase } from "./sentences.js";
import { traceIndex } from "./trace_index.js";

export const VIEW = "cuda-acceleration";

const MAX_PAGES = 48;

// --- model --------------------------------------------------------------------------------------

/** @typedef {import("./sentences.js").EngineEvent} EngineEvent */

/** @param {any} store */
export function model(store) {
  const index = traceIndex(store);
  const { events, step, share, command } = atCursor(store);
  const one = (/** @type {string} */ type) =>
    events.findLast((/** @type {EngineEvent} */ event) => event.type === type);
  const config = store.header?.config ?? {};
  return {
    view: VIEW,
    sentence: sentenceOf(store, VIEW),
    step,
    share,
    command,
    dispatch: dispatchOf(one("step_dispatched"), one("batch_scheduled")),
    everCaptured: [...index.steps.values()].some(
      (facts) => facts.dispatch && facts.dispatch.facts.mode !== "NONE",
    ),
    forward: timed(one("forward_run")),
    attention: timed(one("attention_run")),
    modules: modulesOf(one("modules_timed")),
    weights: one("weights_read")?.facts.num_bytes ?? null,
    written: one("kv_written")?.facts ?? null,
    phases: phasesOf(index, step, store.cursor),
    batch: batchOf(store, one("inputs_prepared"), events, config.block_size ?? 16),
    pages: pagesOf(store, events, config),
    heads: headsOf(one("heads_grouped"), store.header?.model ?? {}),
    history: historyOf(index, store.cursor),
    device: store.header?.model?.device ?? "",
  };
}

/** @typedef {ReturnType<typeof model>} Model */

/** @param {EngineEvent | undefined} event @param {EngineEvent | undefined} batch */
function dispatchOf(event, batch) {
  if (!event) return null;
  const { mode, num_tokens, num_padded_tokens } = event.facts;
  return {
    mode,
    eager: mode === "NONE",
    tokens: num_tokens,
    padding: num_padded_tokens - num_tokens,
    why: reasonPhrase(event.reason),
    prefill: batch?.facts.prefill_tokens ?? 0,
    decode: batch?.facts.decode_tokens ?? 0,
    requests: batch?.facts.num_requests ?? 0,
  };
}

/** @param {EngineEvent | undefined} event */
function timed(event) {
  return event ? { ...event.facts, us: event.duration_us } : null;
}

/** @param {EngineEvent | undefined} event */
function modulesOf(event) {
  if (!event) return [];
  const { kinds, calls, durations_us } = event.facts;
  return kinds.map((/** @type {string} */ kind, /** @type {number} */ i) => ({
    kind,
    calls: calls[i],
    us: durations_us[i],
  }));
}

/**
 * @param {import("./trace_index.js").TraceIndex} index @param {number} step @param {number} cursor
 */
function phasesOf(index, step, cursor) {
  const phases = index.steps.get(step)?.phases;
  return PHASES.map((phase) => {
    const item = phases?.get(phase);
    return { phase, us: item && item.i <= cursor ? item.us : null };
  });
}

/**
 * The flattened batch.
 * @param {any} store @param {EngineEvent | undefined} event @param {EngineEvent[]} events
 * @param {number} blockSize
 */
function batchOf(store, event, events, blockSize) {
  if (!event) return null;
  const f = event.facts;
  const sampled = new Map(
    events
      .filter((item) => item.type === "token_sampled")
      .map((item) => [item.facts.request, item.facts.token]),
  );
  const requests = f.requests.map((/** @type {string} */ id, /** @type {number} */ i) => ({
    id,
    first: f.query_start_loc[i],
    end: f.query_start_loc[i + 1],
    seqLen: f.seq_lens[i],
    sampled: sampled.get(id) ?? null,
  }));
  return {
    requests,
    ids: f.input_ids,
    positions: f.positions,
    slots: f.slot_mapping,
    blockSize,
    us: event.duration_us,
  };
}

/**
 * What attention read, for the request shown and in sum.
 * @param {any} store @param {EngineEvent[]} events @param {any} config
 */
function pagesOf(store, events, config) {
  const read = events.filter((event) => event.type === "pages_read");
  const chosen = shownRequest(store);
  const shown =
    read.find((event) => event.facts.request === chosen) ??
    (store.selection?.request ? undefined : read[read.length - 1]);
  return {
    chosen,
    shown: shown ? { ...shown.facts, seq: shown.seq } : null,
    all: read.map((event) => ({
      request: event.facts.request,
      pages: event.facts.blocks.length,
      bytes: event.facts.num_bytes,
    })),
    pool: config.num_gpu_blocks ?? 1,
    blockSize: config.block_size ?? 16,
  };
}

/** @param {EngineEvent | undefined} event @param {any} shape */
function headsOf(event, shape) {
  const query = event?.facts.num_attention_heads ?? shape.num_attention_heads;
  const kv = event?.facts.num_kv_heads ?? shape.num_kv_heads;
  const perToken = event?.facts.kv_bytes_per_token ?? shape.kv_bytes_per_token;
  if (!query || !kv) return null;
  return { query, kv, group: query / kv, perToken, layers: shape.num_layers, dim: shape.head_dim };
}

/** @param {import("./trace_index.js").TraceIndex} index @param {number} cursor */
function historyOf(index, cursor) {
  const history = [];
  for (const facts of index.steps.values()) {
    let us = 0;
    for (const phase of facts.phases.values()) us += phase.us;
    const i = facts.dispatch ? facts.dispatch.seq : (facts.batch?.seq ?? Infinity);
    history.push({
      step: facts.step,
      mode: facts.dispatch?.facts.mode ?? null,
      tokens: facts.shares.reduce(
        (sum, share) => sum + (share.takenBack === undefined ? share.tokens : 0),
        0,
      ),
      us,
      seq: i,
      future: (facts.phases.get("arrive")?.i ?? Infinity) > cursor,
    });
  }
  return history;
}

// --- batch strip --------------------------------------------------------------------------------

const LABELS = 62;
const LANES = { who: 20, token: 26, position: 18, slot: 24, out: 20 };

class BatchStrip {
  /** @param {any} store @param {HTMLElement} root */
  constructor(store, root) {
    this.store = store;
    this.plane = new Plane("The flattened batch", "gbp-batch");
    this.tip = new Tip(root);
    /** @type {Model["batch"]} */
    this.batch = null;
    this.cell = 20;
    this.plane.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.plane.canvas.addEventListener("mouseleave", () => this.tip.hide());
    this.plane.canvas.addEventListener("click", (event) => {
      const found = this.find(event);
      if (found) store.select({ request: found.request.id });
    });
  }

  /** @param {Model["batch"]} batch @param {any} colours @param {number} width */
  draw(batch, colours, width) {
    this.batch = batch;
    const lanes = LANES;
    const height = lanes.who + lanes.token + lanes.position + lanes.slot + lanes.out + 6;
    const c = this.plane.begin(width, batch && batch.ids.length ? height : 0);
    if (!batch || batch.ids.length === 0) return;
    this.cell = Math.min(72, (width - LABELS - 2) / batch.ids.length);
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
    y += lanes.slot + 2;
    if (!batch.requests.some((request) => request.sampled !== null)) return;
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
    for (const request of batch.requests) {
      const colour = requestColour(request.id, colours.theme);
      const x = this.x(request.first);
      const w = (request.end - request.first) * this.cell;
      c.fillStyle = colour;
      c.fillRect(x + 0.5, y + 16, w - 1, 2);
      c.font = `${request.id === chosen ? 700 : 500} 11px ${colours.mono}`;
      c.textAlign = "left";
      const rows = request.end - request.first;
      const text =
        rows > 1 ? `${request.id}: rows ${request.first}–${request.end - 1}` : request.id;
      if (w > 14) c.fillText(fit(c, text, w - 2), x + 1, y + 8);
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
      for (let row = request.first; row < request.end; row += 1) {
        roundRect(
          c,
          this.x(row) + gap / 2,
          y + 2,
          Math.max(0.6, this.cell - gap),
          22,
          this.cell > 8 ? 3 : 0,
        );
        c.fill();
      }
      if (this.cell < 15) continue;
      c.fillStyle = onRequestColour(colours.theme);
      c.font = `${this.cell > 24 ? 10.5 : 9}px ${colours.mono}`;
      c.textAlign = "center";
      for (let row = request.first; row < request.end; row += 1) {
        const text = this.text(request.id, batch.positions[row]) ?? String(batch.ids[row]);
        const words = visible(text.trim() || text);
        const room = this.cell - 4;
        // In a narrow cell an ellipsis would cost half of what can be read.
        const shown = this.cell < 34 ? words.slice(0, Math.floor(room / 5.5)) : fit(c, words, room);
        c.fillText(shown, this.x(row) + this.cell / 2, y + 13.5);
      }
    }
  }

  /**
   * The text of a request's token at a position, where it is known.
   * @param {string} id @param {number} position
   */
  text(id, position) {
    const request = this.store.state?.requests?.[id];
    if (!request?.prompt_pieces) return undefined;
    const prompt = request.num_prompt_tokens;
    return position < prompt
      ? request.prompt_pieces[position]
      : request.output_pieces?.[position - prompt];
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {NonNullable<Model["batch"]>} batch
   * @param {number} y @param {any} colours
   */
  drawPositions(c, batch, y, colours) {
    c.font = `${this.cell >= 24 ? 10.5 : 9.5}px ${colours.mono}`;
    c.fillStyle = colours.muted;
    c.textAlign = "center";
    for (const request of batch.requests) {
      const rows = request.end - request.first;
      const last = batch.positions[request.end - 1];
      if (this.cell >= 8 * String(last).length) {
        for (let row = request.first; row < request.end; row += 1) {
          c.fillText(String(batch.positions[row]), this.x(row) + this.cell / 2, y + 9);
        }
      } else {
        const text = rows > 1 ? `${batch.positions[request.first]}–${last}` : String(last);
        if (c.measureText(text).width < rows * this.cell)
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
    for (const run of slotRuns(batch)) {
      const colour = requestColour(run.request, colours.theme);
      const x = this.x(run.first);
      const w = (run.end - run.first) * this.cell;
      c.globalAlpha = 0.16;
      c.fillStyle = colour;
      roundRect(c, x + 1, y + 2, Math.max(1, w - 2), 20, 4);
      c.fill();
      c.globalAlpha = 1;
      c.strokeStyle = colour;
      roundRect(c, x + 1.5, y + 2.5, Math.max(1, w - 3), 19, 4);
      c.stroke();
      c.fillStyle = colours.text;
      c.font = `10.5px ${colours.mono}`;
      c.textAlign = "center";
      const offset = run.from === run.to ? `${run.from}` : `${run.from}–${run.to}`;
      const text = [
        `block ${run.block}: ${offset}`,
        `${run.block}: ${offset}`,
        `${run.block}`,
      ].find((words) => c.measureText(words).width < w - 5);
      if (text) c.fillText(text, x + w / 2, y + 12.5);
    }
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {NonNullable<Model["batch"]>} batch
   * @param {number} y @param {any} colours
   */
  drawSampled(c, batch, y, colours) {
    c.textAlign = "center";
    for (const request of batch.requests) {
      if (request.sampled === null) continue;
      const x = this.x(request.end - 1) + this.cell / 2;
      c.fillStyle = colours.event;
      c.beginPath();
      c.moveTo(x - 4, y + 1);
      c.lineTo(x + 4, y + 1);
      c.lineTo(x, y + 6);
      c.fill();
      const text = visible(this.text(request.id, request.seqLen) || `#${request.sampled}`).trim();
      c.font = `600 10.5px ${colours.mono}`;
      c.fillStyle = requestColour(request.id, colours.theme);
      if (this.cell >= 18) c.fillText(fit(c, text, Math.max(this.cell, 30) - 2), x, y + 13);
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
  hover(event) {
    const found = this.find(event);
    const { batch } = this;
    if (!found || !batch) return this.tip.hide();
    const { row, request } = found;
    const slot = batch.slots[row];
    const size = batch.blockSize;
    this.tip.show(event, [
      `Row ${row} · ${request.id}`,
      `input id ${batch.ids[row]}, position ${batch.positions[row]}`,
      `KV slot ${slot} = block ${Math.floor(slot / size)} × ${size} + ${slot % size}`,
      `${request.id} has ${plural(request.seqLen, "token")} of KV after this step`,
      "measured: inputs_prepared",
    ]);
  }
}

/** @param {NonNullable<Model["batch"]>} batch */
function slotRuns(batch) {
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

// --- history ------------------------------------------------------------------------------------

const HISTORY = 62;

class HistoryStrip {
  /** @param {any} store @param {HTMLElement} root */
  constructor(store, root) {
    this.store = store;
    this.plane = new Plane("Steps and how they ran", "gbp-history");
    this.plane.canvas.tabIndex = 0;
    this.tip = new Tip(root);
    this.column = 10;
    this.from = 0;
    /** @type {Model["history"]} */
    this.shown = [];
    const { canvas } = this.plane;
    canvas.addEventListener("mousemove", (event) => this.hover(event));
    canvas.addEventListener("mouseleave", () => this.tip.hide());
    canvas.addEventListener("click", (event) => {
      const item = this.find(event);
      if (item) seekStep(store, item.step);
    });
    canvas.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (move === undefined) return;
      seekStep(store, this.step + move);
      event.preventDefault();
      event.stopPropagation();
    });
    this.step = 0;
  }

  /** @param {Model} data @param {any} colours @param {number} width */
  draw(data, colours, width) {
    const { history } = data;
    this.step = data.step;
    const c = this.plane.begin(width, HISTORY + 22);
    const room = width - LABELS - 4;
    this.column = Math.max(6, Math.min(28, Math.floor(room / Math.max(1, history.length))));
    const fits = Math.floor(room / this.column);
    const at = history.findIndex((item) => item.step === data.step);
    this.from = Math.max(0, Math.min(history.length - fits, at - Math.round(fits * 0.7)));
    this.shown = history.slice(this.from, this.from + fits);
    const largest = this.shown.reduce((most, item) => Math.max(most, item.us), 1);
    c.textBaseline = "middle";
    this.drawScale(c, largest, colours, width);
    this.shown.forEach((item, i) =>
      this.drawStep(c, item, LABELS + i * this.column, largest, colours, data),
    );
    c.globalAlpha = 1;
    const x = LABELS + (at - this.from + data.share) * this.column;
    if (at < 0 || x < LABELS) return;
    c.strokeStyle = colours.event;
    c.lineWidth = 2;
    c.beginPath();
    c.moveTo(x, 0);
    c.lineTo(x, HISTORY);
    c.stroke();
    c.lineWidth = 1;
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {number} largest @param {any} colours
   * @param {number} width
   */
  drawScale(c, largest, colours, width) {
    c.font = `10.5px ${colours.mono}`;
    c.fillStyle = colours.muted;
    c.textAlign = "left";
    c.fillText(micros(largest), 0, 10);
    c.fillText("0", 0, HISTORY - 6);
    c.strokeStyle = colours.border;
    c.beginPath();
    c.moveTo(LABELS, 4.5);
    c.lineTo(width, 4.5);
    c.moveTo(LABELS, HISTORY + 0.5);
    c.lineTo(width, HISTORY + 0.5);
    c.stroke();
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Model["history"][0]} item @param {number} x
   * @param {number} largest @param {any} colours @param {Model} data
   */
  drawStep(c, item, x, largest, colours, data) {
    const h = Math.max(1.5, (item.us / largest) * (HISTORY - 6));
    const graph = item.mode !== null && item.mode !== "NONE";
    c.globalAlpha = item.future ? 0.28 : 1;
    c.fillStyle = graph ? colours.cloud : item.mode === null ? colours.border : colours.backend;
    roundRect(c, x + 1, HISTORY - h, Math.max(1.5, this.column - 2.5), h, this.column > 8 ? 2 : 0);
    c.fill();
    const now = item.step === data.step;
    const every = this.column >= 20 ? 1 : this.column >= 12 ? 5 : 10;
    if (item.step % every && !now) return;
    c.globalAlpha = 1;
    c.font = `${now ? 700 : 400} 10px ${colours.mono}`;
    c.textAlign = "center";
    c.fillStyle = now ? colours.event : colours.muted;
    if (!now && every > 1 && Math.abs(item.step - data.step) * this.column < 20) return;
    c.fillText(String(item.step), x + this.column / 2, HISTORY + 12);
  }

  /** @param {MouseEvent} event */
  find(event) {
    return this.shown[Math.floor((this.plane.at(event).x - LABELS) / this.column)];
  }

  /** @param {MouseEvent} event */
  hover(event) {
    const item = this.find(event);
    if (!item) return this.tip.hide();
    this.tip.show(event, [
      `Step ${item.step}`,
      `${plural(item.tokens, "token")} in ${micros(item.us)}`,
      item.mode === null
        ? "no forward was dispatched"
        : item.mode === "NONE"
          ? "eager"
          : `graph: ${item.mode}`,
      "derived: the sum of the measured times of its phases",
    ]);
  }
}

// --- panel --------------------------------------------------------------------------------------

/** Matrix products share a hue, since they decide about the time. */
/** @type {Record<string, [string, number]>} */
const KIND_COLOURS = {
  mlp: ["--gb-backend", 100],
  qkv_proj: ["--gb-backend", 78],
  o_proj: ["--gb-backend", 58],
  lm_head: ["--gb-backend", 42],
  attention: ["--gb-cloud", 100],
  norm: ["--gb-database", 80],
  embed: ["--gb-database", 50],
  other: ["--gb-muted", 60],
};

/** @param {string} kind */
function kindColour(kind) {
  const [name, share] = KIND_COLOURS[kind] ?? ["--gb-muted", 80];
  return `color-mix(in srgb, var(${name}) ${share}%, var(--gb-panel))`;
}

class GraphPanel {
  /** @param {HTMLElement} root @param {any} store */
  constructor(root, store) {
    this.store = store;
    this.sentence = new Sentence(store, VIEW);
    this.element = el("div", { class: "gbp gbp-graph" });
    this.strip = new BatchStrip(store, this.element);
    this.history = new HistoryStrip(store, this.element);
    this.dispatch = el("div");
    this.times = el("div", { class: "gbp-where" });
    this.pages = el("div");
    this.heads = el("div");
    this.stripEmpty = el("p", { class: "gbp-more" });
    this.batch = section(
      "The batch: one row a token, requests one after the other",
      "batchside",
      this.strip.plane.canvas,
      this.stripEmpty,
    );
    this.past = section(
      "Steps: time of each, eager or replayed",
      "past",
      this.history.plane.canvas,
    );
    this.twin = new Twin("Steps and how they ran", ["Step", "Mode", "Tokens", "Time"], () =>
      this.twinRows(),
    );
    this.element.append(
      this.sentence.element,
      el(
        "div",
        { class: "gbp-columns gbp-top" },
        section("How it was dispatched", "dispatch", this.dispatch),
        section("Where the forward's time went", "clocks", this.times),
      ),
      this.batch,
      el(
        "div",
        { class: "gbp-columns gbp-mid" },
        section("What attention read", "pages", this.pages),
        section("Query heads that share a KV head", "heads", this.heads),
      ),
      this.past,
      this.twin.element,
    );
    root.append(this.element);
    this.key = "";
    this.headsKey = "";
    this.redraw = redrawOnChange(this.element, (force) => this.update(force), [
      this.pages,
      this.heads,
    ]);
  }

  update(force = false) {
    const { store } = this;
    const key = `${traceIndex(store).traceId} ${store.records.length} ${store.cursor} ${store.selection?.request}`;
    if (!force && key === this.key) return;
    this.key = key;
    const data = model(store);
    this.data = data;
    const colours = this.redraw.colours.get();
    const { width } = this.redraw.size(this.element);
    // Canvases first: a font set on a canvas makes the browser work through changed elements.
    if (width > 0) this.strip.draw(data.batch, colours, width);
    if (width > 0) this.history.draw(data, colours, width);
    this.sentence.update();
    this.drawDispatch(data);
    this.drawTimes(data);
    setText(this.stripEmpty, data.batch ? "" : "No batch has been laid out in this step so far.");
    this.stripEmpty.hidden = data.batch !== null;
    this.drawPages(data, colours);
    this.drawHeads(data, colours);
    this.strip.plane.label(
      data.batch
        ? `The batch of step ${data.step}: ${plural(data.batch.ids.length, "row")} of ${plural(data.batch.requests.length, "request")}`
        : "No batch",
    );
    this.history.plane.label(
      `${plural(data.history.length, "step")}, the cursor is in step ${data.step}. Arrow keys move through steps.`,
    );
    this.twin.later();
  }

  /** @param {Model} data */
  drawDispatch(data) {
    const { dispatch } = data;
    if (!dispatch) {
      this.dispatch.replaceChildren(
        el("p", { class: "gbp-mode is-none", text: "not dispatched" }),
        el("p", {
          class: "gbp-more",
          text: "The batch is not with the runner, or this step has none.",
        }),
      );
      return;
    }
    const padding =
      dispatch.padding > 0 ? `${plural(dispatch.padding, "row")} of padding` : "no padding";
    const words = [
      el(
        "p",
        { class: `gbp-mode ${dispatch.eager ? "" : "is-graph"}` },
        truth("measured", "step_dispatched", dispatch.eager ? "eager" : "graph replay"),
        el("code", { text: dispatch.mode }),
      ),
      el("p", {
        class: "gbp-because",
        text: dispatch.why
          ? `${dispatch.why.charAt(0).toUpperCase()}${dispatch.why.slice(1)}.`
          : "",
      }),
      el(
        "p",
        { class: "gbp-more" },
        truth(
          "measured",
          "batch_scheduled",
          `${count(dispatch.prefill)} prefill + ${count(dispatch.decode)} decode tokens`,
        ),
        ` of ${plural(dispatch.requests, "request")}, `,
        truth("derived", "num_padded_tokens − num_tokens", padding),
      ),
    ];
    if (dispatch.eager && !data.everCaptured) {
      words.push(
        el("p", {
          class: "gbp-more",
          text: "Capture is not built in this engine yet: no size is captured, and every operation is launched one by one.",
        }),
      );
    }
    this.dispatch.replaceChildren(...words);
  }

  /** @param {Model} data */
  drawTimes(data) {
    const { modules, forward } = data;
    const sum = modules.reduce(
      (/** @type {number} */ all, /** @type {any} */ item) => all + item.us,
      0,
    );
    const where =
      data.device === "cpu" || data.device === ""
        ? "measured on the CPU"
        : `measured on ${data.device}`;
    const rows = modules.filter((/** @type {any} */ item) => item.us > 0);
    const parts = [];
    if (forward?.us !== undefined && rows.length) {
      parts.push(
        el(
          "p",
          { class: "gbp-total" },
          truth("measured", `forward_run, ${where}`, micros(forward.us)),
          el("small", {
            text: ` ${where}: ${plural(forward.num_tokens, "token")} through ${plural(forward.num_layers, "layer")}`,
          }),
        ),
      );
      parts.push(
        el(
          "div",
          { class: "gbp-stack", role: "presentation" },
          ...rows.map((/** @type {any} */ item) => this.segment(item, sum)),
        ),
      );
      parts.push(
        el(
          "ul",
          { class: "gbp-kinds" },
          ...rows.map((/** @type {any} */ item) => this.kind(item, sum, where)),
        ),
      );
    } else
      parts.push(
        el("p", { class: "gbp-more", text: "The model has not run in this step so far." }),
      );
    const phases = data.phases.filter((item) => item.us !== null);
    if (phases.length) {
      parts.push(
        el(
          "p",
          { class: "gbp-phases" },
          el("span", { text: "by phase " }),
          ...phases.flatMap((item) => [
            el(
              "span",
              {},
              `${item.phase} `,
              truth(
                "measured",
                `the phase's own clock, its log included, ${where}`,
                micros(Number(item.us)),
              ),
            ),
          ]),
        ),
      );
    }
    this.times.replaceChildren(...parts);
  }

  /** @param {{kind: string, calls: number, us: number}} item @param {number} sum */
  segment(item, sum) {
    const part = el("i", { title: `measured: ${item.kind} ${micros(item.us)}` });
    part.style.flexGrow = String(item.us / sum);
    part.style.background = kindColour(item.kind);
    return part;
  }

  /**
   * @param {{kind: string, calls: number, us: number}} item @param {number} sum
   * @param {string} where
   */
  kind(item, sum, where) {
    const mark = el("i", { class: "gbp-mark", "aria-hidden": "true" });
    mark.style.background = kindColour(item.kind);
    const calls = item.calls ? plural(item.calls, "call") : "";
    return el(
      "li",
      {},
      mark,
      el("span", { text: item.kind }),
      truth("measured", `modules_timed, ${where}`, micros(item.us)),
      el(
        "small",
        {},
        truth("derived", `${item.kind} / sum of all kinds`, percent(item.us / sum)),
        calls ? ` · ${calls}` : "",
      ),
    );
  }

  /** @param {Model} data @param {any} colours */
  drawPages(data, colours) {
    const { shown, all, chosen } = data.pages;
    const others = el(
      "p",
      { class: "gbp-others" },
      ...all.map((item) => this.other(item, shown?.request, colours.theme)),
    );
    if (!shown) {
      const text = all.length
        ? `${chosen} was not in this batch.`
        : "Attention has not run in this step so far.";
      this.pages.replaceChildren(el("p", { class: "gbp-more", text }), others);
      return;
    }
    const heads = data.heads;
    const how = `derived from the block table: ${plural(shown.blocks.length, "page")} × ${data.pages.blockSize} tokens${heads ? ` × ${count(heads.perToken)} bytes a token` : ""}; a kernel's own trace will replace it`;
    const id = el("b", { class: "gbp-id", text: shown.request });
    id.style.color = requestColour(shown.request, colours.theme);
    this.pages.replaceChildren(
      el(
        "p",
        { class: "gbp-lead" },
        id,
        " ",
        truth(
          "derived",
          how,
          `${plural(shown.blocks.length, "page")}, ${plural(shown.num_tokens, "token")} of context, ${bytes(shown.num_bytes)}`,
        ),
        el("span", { class: "gbp-tag", text: "derived from the block table" }),
      ),
      this.walk(shown, data, colours),
      others,
    );
  }

  /**
   * @param {{request: string, pages: number, bytes: number}} item @param {string | undefined} shown
   * @param {string} theme
   */
  other(item, shown, theme) {
    const button = el("button", {
      type: "button",
      class: "gbp-chip",
      text: `${item.request}: ${item.pages}`,
      "aria-pressed": String(item.request === shown),
      title: `derived: ${plural(item.pages, "page")}, ${bytes(item.bytes)}`,
    });
    button.style.color = requestColour(item.request, theme);
    button.addEventListener("click", () => this.store.select({ request: item.request }));
    return button;
  }

  /**
   * Pages in the order in which they are read, and where they lie.
   * @param {any} shown @param {Model} data @param {any} colours
   */
  walk(shown, data, colours) {
    const width = Math.max(240, this.redraw.size(this.pages).width || 600);
    const blocks = shown.blocks.slice(0, MAX_PAGES);
    const size = Math.min(46, (width - 4) / blocks.length);
    const hue = requestColour(shown.request, colours.theme);
    const low = 92;
    const picture = svg("svg", {
      class: "gbp-walk",
      width,
      height: 124,
      viewBox: `0 0 ${width} 124`,
      role: "img",
      "aria-label": `${shown.request} reads ${ranges(shown.blocks, 12)} in this order`,
    });
    picture.append(
      svg("rect", {
        x: 1,
        y: low,
        width: width - 2,
        height: 12,
        rx: 3,
        fill: "none",
        stroke: colours.border,
      }),
    );
    const at = (/** @type {number} */ block) => 2 + ((block + 0.5) / data.pages.pool) * (width - 4);
    const cell = Math.max(2, (width - 4) / data.pages.pool - 1);
    blocks.forEach((/** @type {number} */ block, /** @type {number} */ i) => {
      const x = 2 + i * size;
      const tokens = Math.min(data.pages.blockSize, shown.num_tokens - i * data.pages.blockSize);
      const share = Math.max(0, tokens / data.pages.blockSize);
      const page = svg(
        "g",
        {},
        svg("title", {
          text: `page ${i} is block ${block}: ${plural(tokens, "token")} of context (derived from the block table)`,
        }),
        svg("path", {
          d: `M ${x + size / 2} 42 C ${x + size / 2} 70, ${at(block)} 62, ${at(block)} ${low}`,
          fill: "none",
          stroke: hue,
          "stroke-width": 1.4,
          opacity: 0.6,
        }),
        svg("rect", {
          x: x + 1,
          y: 14,
          width: size - 3,
          height: 28,
          rx: Math.min(4, size / 4),
          fill: hue,
          opacity: 0.2,
        }),
        svg("rect", {
          x: x + 1,
          y: 14 + 28 * (1 - share),
          width: size - 3,
          height: 28 * share,
          rx: Math.min(4, size / 4),
          fill: hue,
        }),
        svg("rect", {
          x: at(block) - cell / 2,
          y: low + 1.5,
          width: cell,
          height: 9,
          rx: Math.min(2, cell / 3),
          fill: hue,
        }),
      );
      if (size > 18) {
        page.append(
          svg("text", {
            x: x + size / 2 - 0.5,
            y: 32,
            "text-anchor": "middle",
            class: share > 0.55 ? "on" : "",
            fill: share > 0.55 ? onRequestColour(colours.theme) : colours.text,
            text: block,
          }),
          svg("text", {
            x: x + size / 2 - 0.5,
            y: 9,
            "text-anchor": "middle",
            class: "small",
            fill: colours.muted,
            text: i,
          }),
        );
      }
      picture.append(page);
    });
    picture.append(
      svg("text", {
        x: 2,
        y: 119,
        class: "small",
        fill: colours.muted,
        text: `the pool, blocks 0 to ${data.pages.pool - 1}`,
      }),
    );
    if (shown.blocks.length > blocks.length)
      picture.append(
        svg("text", {
          x: width - 2,
          y: 119,
          "text-anchor": "end",
          class: "small",
          fill: colours.muted,
          text: `the first ${blocks.length} of ${shown.blocks.length} pages`,
        }),
      );
    return picture;
  }

  /** @param {Model} data @param {any} colours */
  drawHeads(data, colours) {
    const { heads } = data;
    const key = JSON.stringify(heads) + colours.theme + this.redraw.size(this.heads).width;
    if (key === this.headsKey) return;
    this.headsKey = key;
    if (!heads) {
      this.heads.replaceChildren(
        el("p", { class: "gbp-more", text: "This trace ran no model: there is no shape to show." }),
      );
      return;
    }
    const elements = heads.layers && heads.dim ? 2 * heads.layers * heads.kv * heads.dim : 0;
    const formula = elements
      ? `2 (K and V) × ${heads.layers} layers × ${heads.kv} KV heads × ${heads.dim} × ${heads.perToken / elements} bytes`
      : "from the model's shape";
    this.heads.replaceChildren(
      this.headsPicture(heads, colours),
      el(
        "p",
        { class: "gbp-shape" },
        truth("derived", formula, `${bytes(heads.perToken)} of KV a token`),
        `, ${formula}.`,
      ),
      el(
        "p",
        { class: "gbp-more" },
        "With a KV head for each query head: ",
        truth(
          "derived",
          `${bytes(heads.perToken)} × ${heads.query} / ${heads.kv}`,
          bytes(heads.perToken * heads.group),
        ),
        `, ${Number(heads.group.toFixed(2))} times as much to store and to read.`,
      ),
    );
  }

  /** @param {NonNullable<Model["heads"]>} heads @param {any} colours */
  headsPicture(heads, colours) {
    const groups = Math.min(heads.kv, 8);
    const per = Math.min(Math.ceil(heads.group), 8);
    const width = Math.max(240, Math.min(460, this.redraw.size(this.heads).width || 420));
    const w = width / groups;
    const picture = svg("svg", {
      class: "gbp-headmap",
      width,
      height: 96,
      viewBox: `0 0 ${width} 96`,
      role: "img",
      "aria-label": `${heads.query} query heads, ${heads.group} of them on each of ${heads.kv} KV heads`,
    });
    for (let kv = 0; kv < groups; kv += 1) {
      const middle = kv * w + w / 2;
      for (let q = 0; q < per; q += 1) {
        const x = middle + (q - (per - 1) / 2) * Math.min(34, (w - 12) / per);
        const r = Math.min(11, (w - 12) / per / 2 - 1);
        picture.append(
          svg("path", {
            d: `M ${x} ${18 + r} C ${x} 50, ${middle} 44, ${middle} 66`,
            fill: "none",
            stroke: colours.cloud,
            "stroke-width": 1.3,
            opacity: 0.55,
          }),
          svg("circle", {
            cx: x,
            cy: 18,
            r,
            fill: "none",
            stroke: colours.cloud,
            "stroke-width": 1.5,
          }),
        );
        if (r > 8)
          picture.append(
            svg("text", {
              x,
              y: 21.5,
              "text-anchor": "middle",
              class: "small",
              fill: colours.text,
              text: Math.round(kv * heads.group + q),
            }),
          );
      }
      const side = Math.min(w - 10, 76);
      picture.append(
        svg("rect", {
          x: middle - side / 2,
          y: 66,
          width: side,
          height: 26,
          rx: 5,
          fill: colours.database,
          opacity: 0.16,
        }),
        svg("rect", {
          x: middle - side / 2,
          y: 66,
          width: side,
          height: 26,
          rx: 5,
          fill: "none",
          stroke: colours.database,
        }),
        svg("text", {
          x: middle,
          y: 83,
          "text-anchor": "middle",
          fill: colours.text,
          text: side > 44 ? `KV ${kv}` : kv,
        }),
      );
    }
    return picture;
  }

  twinRows() {
    return (this.data?.history ?? [])
      .filter((item) => !item.future)
      .slice(-60)
      .map((item) => [
        String(item.step),
        item.mode === null ? "none" : item.mode === "NONE" ? "eager" : item.mode,
        String(item.tokens),
        micros(item.us),
      ]);
  }

  destroy() {
    this.redraw.destroy();
    this.twin.destroy();
    this.element.remove();
  }
}

/**
 * @param {HTMLElement} root @param {any} store
 * @returns {{update(): void, destroy(): void, panel: object}}
 */
export function mount(root, store) {
  const panel = new GraphPanel(root, store);
  panel.update(true);
  return { update: () => panel.update(), destroy: () => panel.destroy(), panel };
}
