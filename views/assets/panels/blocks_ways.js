// @ts-check
/** Beside the old ways: the same requests in the same memory, one contiguous piece each. */
import { memoryAt, splitOf } from "../core/memory_parts.js";
import { el } from "../page/dom.js";
import { setTruth, truth } from "../page/truth.js";
import { requestColour } from "../words/colours.js";
import { count, percent, plural } from "../words/format.js";
import { PARTS, PLACED_HOW, WAYS, batchHow, besideWords, roomHow } from "../words/ways.js";
import { Plane, hatch } from "./canvas.js";
import { Tip, remake } from "./parts.js";

/** @import { Memory, Parts, Piece, Way } from "../core/memory_parts.js" */
/** @import { Store } from "../core/store.js" */
/** @import { Palette } from "./canvas.js" */

const HEIGHT = 24;
const PART_NAMES = /** @type {(keyof Parts)[]} */ (Object.keys(PARTS));

export class WaysView {
  /** @param {Store} store @param {HTMLElement} root positioned, for the note beside the pointer */
  constructor(store, root) {
    this.store = store;
    this.tip = new Tip(root);
    this.sentence = el("p", { class: "gbp-beside-words" });
    this.rows = Object.keys(WAYS).map((name) => new WayRow(name, this));
    /** The element whose width the strips have. */
    this.gauge = this.rows[0].strip;
    this.note = el("p", { class: "gbp-more" });
    this.element = el(
      "section",
      { class: "gbp-section gbp-beside", hidden: true },
      el(
        "table",
        { class: "gbp-ways" },
        tableHead(),
        el("tbody", {}, ...this.rows.map((row) => row.element)),
      ),
      this.note,
      paperCard(),
    );
    /** @type {Memory | null} */
    this.memory = null;
  }

  /** @param {Palette} colours @param {number} width of a strip */
  update(colours, width) {
    const config = this.store.header?.config ?? {};
    const memory = this.store.atPhaseEnd((state) => memoryAt(state, config));
    this.memory = memory;
    memory.ways.forEach((way, i) => this.rows[i].update(way, memory, colours, width));
    const words = besideWords(memory);
    remake(this.sentence, words, () =>
      words.map(({ text, how }) => (how ? truth("derived", how, text) : text)),
    );
    remake(this.note, [memory.modelLength], () => [
      `Each strip is the pool's ${count(memory.size)} slots, from first to last. `,
      "How long a running request gets, nobody knows: power of two and true length take the most " +
        "it may get, max_tokens. Pieces lie first fit; a preempted request gives its piece back. " +
        "All ways are compared as the latest phase left them.",
    ]);
  }
}

/** One way: its strip, its parts, how many it has room for. */
class WayRow {
  /** @param {string} name @param {WaysView} view */
  constructor(name, view) {
    this.name = name;
    this.view = view;
    this.plane = new Plane(WAYS[name].label, "gbp-strip");
    this.strip = el("div", { class: "gbp-stripbox" }, this.plane.canvas);
    this.reserves = el("small");
    this.parts = PART_NAMES.map((part) => el("span", { "data-part": part }));
    this.room = el("span");
    this.batch = el("span");
    this.element = el(
      "tr",
      { class: `is-${name}` },
      el("th", { scope: "row" }, WAYS[name].label, this.reserves),
      el("td", { class: "gbp-stripcell" }, this.strip),
      ...this.parts.map((node, i) =>
        el("td", { "data-name": PART_NAMES[i], class: "is-part" }, slotMark(PART_NAMES[i]), node),
      ),
      el("td", { "data-name": "have room", class: "is-room" }, this.room),
      el("td", { "data-name": "largest batch", class: "is-batch" }, this.batch),
    );
    const { canvas } = this.plane;
    canvas.addEventListener("mousemove", (event) => this.point(event));
    canvas.addEventListener("mouseleave", () => view.tip.hide());
    canvas.addEventListener("click", (event) => {
      const piece = this.pieceAt(event);
      if (piece) view.store.select({ request: piece.request });
    });
  }

  /** @param {Way} way @param {Memory} memory @param {Palette} colours @param {number} width */
  update(way, memory, colours, width) {
    this.way = way;
    this.draw(way, memory, colours, width);
    this.plane.label(this.words(way, memory));
    const { how, reserves } = WAYS[this.name];
    setTruth(this.reserves, "derived", how, reserves(memory));
    PART_NAMES.forEach((part, i) => {
      const slots = way.parts[part];
      const formula = `${count(slots)} ÷ ${plural(memory.size, "slot")}: ${PARTS[part]}`;
      const share = memory.size ? percent(slots / memory.size) : "–";
      setTruth(this.parts[i], "derived", formula, share);
      this.parts[i].parentElement?.classList.toggle("is-none", slots === 0);
    });
    const running = memory.running.length;
    const missing = running - way.room.length;
    const [kind, room] = roomHow(this.name);
    const fits = `${count(way.room.length)} of ${count(running)}`;
    setTruth(this.room, kind, room, running ? fits : "–");
    this.room.parentElement?.classList.toggle("is-short", missing > 0);
    const known = running + memory.waiting.length;
    setTruth(this.batch, "derived", batchHow(this.name), known ? count(way.batch) : "–");
  }

  /** @param {Way} way @param {Memory} memory */
  words({ parts, room }, memory) {
    const slots = PART_NAMES.map((part) => `${count(parts[part])} ${part}`).join(", ");
    const fits = `${room.length} of ${memory.running.length} have room`;
    return `${WAYS[this.name].label}: ${fits}; slots: ${slots}`;
  }

  /**
   * The arena to scale, each piece at its place.
   * @param {Way} way @param {Memory} memory @param {Palette} colours @param {number} width
   */
  draw(way, memory, colours, width) {
    if (width <= 0 || memory.size === 0) return;
    const c = this.plane.begin(width, HEIGHT);
    drawGaps(c, width, way.parts.external > 0, colours);
    const scale = width / memory.size;
    for (const piece of joined(way.pieces)) {
      drawPiece(c, piece, scale, requestColour(piece.request, colours.theme), colours);
    }
    c.strokeStyle = colours.border;
    c.strokeRect(0.5, 0.5, width - 1, HEIGHT - 1);
  }

  /** @param {MouseEvent} event */
  slotAt(event) {
    const share = this.plane.at(event).x / Math.max(1, this.plane.width);
    return Math.floor(share * (this.view.memory?.size ?? 0));
  }

  /** @param {MouseEvent} event */
  pieceAt(event) {
    const slot = this.slotAt(event);
    return this.way?.pieces.find(({ start, length }) => start <= slot && slot < start + length);
  }

  /** @param {MouseEvent} event */
  point(event) {
    const piece = this.pieceAt(event);
    this.plane.canvas.style.cursor = piece ? "pointer" : "";
    this.view.tip.show(event, piece ? this.pieceLines(piece) : this.gapLines(this.slotAt(event)));
  }

  /** @param {Piece} piece */
  pieceLines(piece) {
    const { tokens, reserved, internal } = splitOf(piece);
    const { start, length, request } = piece;
    const place =
      this.name === "paged"
        ? `block ${start / length + 1}`
        : `slots ${count(start)} to ${count(start + length - 1)}`;
    const how = this.name === "paged" ? WAYS.paged.how : PLACED_HOW;
    return [
      `${request}: ${place}`,
      `${plural(tokens, "token")}, ${count(reserved)} reserved, ${count(internal)} internal`,
      `${this.name === "paged" ? "measured" : "derived"}: ${how}`,
    ];
  }

  /** @param {number} slot */
  gapLines(slot) {
    const { memory } = this.view;
    const pieces = this.way?.pieces ?? [];
    const before = pieces.findLast((piece) => piece.start <= slot);
    const after = pieces.find((piece) => piece.start > slot);
    const from = before ? before.start + before.length : 0;
    const size = plural((after?.start ?? memory?.size ?? 0) - from, "slot");
    if (!this.way?.parts.external) return [`Free: ${size}`, "nobody stands in line for them"];
    const first = memory?.running.find((id) => !this.way?.room.includes(id)) ?? "";
    const needs = memory?.state.contiguous?.[this.name]?.[first]?.length ?? 0;
    return [`A gap of ${size}`, `too short for ${first}, which would reserve ${count(needs)}`];
  }
}

/**
 * What nobody holds: free, or of no use to the first in line.
 * @param {CanvasRenderingContext2D} c @param {number} width @param {boolean} external
 * @param {Palette} colours
 */
function drawGaps(c, width, external, colours) {
  c.fillStyle = colours["panel-2"];
  c.fillRect(0, 0, width, HEIGHT);
  if (!external) return;
  c.save();
  c.translate(width, 0);
  c.scale(-1, 1); // slanted the other way than what is held
  c.fillStyle = hatch(c, colours.muted);
  c.fillRect(0, 0, width, HEIGHT);
  c.restore();
  c.fillStyle = colours.bad;
  c.fillRect(0, HEIGHT - 3, width, 3);
}

/**
 * Tokens are solid, reserved slots pale, internal waste hatched, all in the request's colour.
 * @param {CanvasRenderingContext2D} c @param {Piece} piece @param {number} scale
 * @param {string} hue @param {Palette} colours
 */
function drawPiece(c, piece, scale, hue, colours) {
  const { tokens, reserved } = splitOf(piece);
  const x = piece.start * scale;
  const whole = piece.length * scale;
  const wide = whole - (whole > 4 ? 1 : 0); // so that two of them do not run together
  const fill = (/** @type {number} */ slots, /** @type {number} */ alpha) => {
    c.globalAlpha = alpha;
    c.fillRect(x, 0, Math.min(slots * scale, wide), HEIGHT);
    c.globalAlpha = 1;
  };
  c.fillStyle = colours.panel;
  c.fillRect(x, 0, whole, HEIGHT);
  c.fillStyle = hatch(c, hue);
  fill(piece.length, 0.6);
  c.fillStyle = colours.panel;
  fill(tokens + reserved, 1);
  c.fillStyle = hue;
  fill(tokens + reserved, 0.35);
  fill(tokens, 1);
}

/** Full pieces of one request that lie side by side, as one. @param {Piece[]} pieces */
function joined(pieces) {
  /** @type {Piece[]} */
  const runs = [];
  for (const piece of pieces) {
    const last = runs[runs.length - 1];
    const goesOn =
      last?.request === piece.request &&
      last.start + last.length === piece.start &&
      last.tokens >= last.length;
    if (!goesOn) runs.push({ ...piece });
    else {
      last.tokens = last.length + piece.tokens;
      last.fills = last.length + piece.fills;
      last.length += piece.length;
    }
  }
  return runs;
}

/** @param {string} part */
function slotMark(part) {
  return el("i", { class: `gbp-mark is-slot-${part}`, "aria-hidden": "true" });
}

function tableHead() {
  const head = (/** @type {string} */ text, how = "", mark = "") =>
    el("th", { scope: "col", title: how || undefined }, mark ? slotMark(mark) : null, text);
  return el(
    "thead",
    {},
    el(
      "tr",
      {},
      head("reserves"),
      head("the same memory"),
      ...PART_NAMES.map((part) => head(part, PARTS[part], part)),
      head("have room"),
      head("largest batch"),
    ),
  );
}

/** Figure 2 of the paper: tokens, reserved, internal and external, in percent. */
const PAPER = [
  ["Maximum (Orca, Max)", "20.4", "13.3", "57.3", "8.9"],
  ["Power of two (Orca, Pow2)", "26.8", "17.9", "13.6", "41.6"],
  ["True length (Orca, Oracle)", "38.2", "25.2", "–", "36.6"],
  ["Paged (vLLM)", "96.3", "–", "–", "–"],
];

const PAPER_URL = "https://arxiv.org/abs/2309.06180";

function paperCard() {
  const source = "the paper's figure 2, not this engine";
  const figure = (/** @type {string} */ text) =>
    text === "–" ? text : truth("illustrative", source, `${text} %`);
  const rows = PAPER.map(([name, ...shares]) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", text: name }),
      ...shares.map((share) => el("td", {}, figure(share))),
    ),
  );
  const head = ["KV memory of", "tokens", "reserved", "internal", "external"];
  return el(
    "details",
    { class: "gbp-paper" },
    el("summary", { text: "What the paper measured, and what is often made of it" }),
    el(
      "table",
      { class: "gbp-graphs" },
      el("thead", {}, el("tr", {}, ...head.map((text) => el("th", { scope: "col", text })))),
      el("tbody", {}, ...rows),
    ),
    el(
      "p",
      {},
      "So 60 to 80 % of the KV memory was wasted by the three ways that reserve one piece each, " +
        "in that experiment: not of the GPU's memory, and not in general. 96.3 % says how much " +
        "of the memory had tokens in it, not how much fragmentation went away: pages have no " +
        "external fragmentation at all, and of internal less than one block a request. ",
      el("a", {
        href: PAPER_URL,
        target: "_blank",
        rel: "noreferrer noopener",
        text: "The PagedAttention paper, figure 2",
      }),
    ),
    el(
      "p",
      {},
      "Its power of two and true length knew each output beforehand, its pieces came from a " +
        "buddy allocator, and memory that no request could use counted as external; here pieces " +
        "lie first fit, which wastes less, and what nobody asks for is free.",
    ),
  );
}
