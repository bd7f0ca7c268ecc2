// @ts-check
/**
 * The model runner's inside: the flattened batch, a column a row, and the sampler: what each token
 * was chosen from, before and after the request's own settings had their say.
 */
import { traceIndex } from "../core/trace_index.js";
import { BatchStrip } from "../panels/graph_batch.js";
import { batchOf, dispatchOf } from "../panels/graph_model.js";
import { redrawOnChange } from "../panels/parts.js";
import { el, reconcile, setAttribute, setText } from "../page/dom.js";
import { CandidatesPart } from "../page/inspector_candidates.js";
import { Parts } from "../page/pace.js";
import { themeOf } from "../page/theme.js";
import { setTruth, truth } from "../page/truth.js";
import { requestColour } from "../words/colours.js";
import { orNobodyAsked } from "../words/empty.js";
import { plural, shortened, tokenName } from "../words/format.js";
import * as words from "../words/rooms.js";

/** @import { Moment } from "../boxes/moment.js" */
/** @import { EventRecord } from "../core/records.js" */
/** @import { Store } from "../core/store.js" */

/** Events that change what is drawn. */
const DRAWN_OF = ["inputs_prepared", "step_dispatched", "token_sampled", "drafts_verified"];

/** @param {Store} store @param {Moment} now */
export function model(store, now) {
  const events = now.entry ? store.eventsOfStep(now.entry) : [];
  const prepared = now.all("inputs_prepared").at(-1);
  const dispatch = dispatchOf(now.all("step_dispatched").at(-1), undefined);
  const size = now.config.block_size ?? 16;
  const sampled = now.all("token_sampled");
  const at = store.records[store.cursor];
  const chosen = store.selection.request;
  const shown =
    sampled.findLast((event) => event === at) ??
    sampled.findLast((event) => event.facts.request === chosen) ??
    sampled[sampled.length - 1];
  return {
    batch: batchOf(traceIndex(store), prepared, events, size),
    padding: dispatch?.padding ?? 0,
    sampled,
    shown,
    empty: orNobodyAsked(store, now.state, words.NO_BATCH),
    sampling: shown ? now.state.requests?.[shown.facts.request]?.sampling : undefined,
  };
}

/** @typedef {ReturnType<typeof model>} Model */

class RunnerRoom {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.store = store;
    this.root = root;
    /** @type {Model|null} */
    this.data = null;
    this.rows = truth("measured", words.ROWS_HOW);
    this.strip = new BatchStrip(store, root);
    this.empty = el("p", { class: "gb-room-none" });
    this.chips = el("div", { class: "gb-chips gb-sampled" });
    this.settings = el("p", { class: "gb-sampling" });
    this.candidates = new CandidatesPart();
    setAttribute(this.candidates.element, "aria-label", words.CANDIDATES);
    this.none = el("p", { class: "gb-room-none", text: words.NOTHING_SAMPLED });
    this.place = el("div", { class: "gb-strip" }, this.strip.plane.canvas, this.empty);
    root.append(
      el("div", { class: "gb-room-caption" }, el("h3", { text: words.BATCH }), this.rows),
      this.place,
      el("div", { class: "gb-room-caption" }, el("h3", { text: words.SAMPLER }), this.settings),
      el(
        "div",
        { class: "gb-sampler" },
        this.chips,
        el(
          "div",
          { class: "gb-sampler-table", tabindex: 0, role: "group", "aria-label": words.SAMPLER },
          this.candidates.element,
          this.none,
        ),
      ),
    );
    this.redraw = redrawOnChange(root, (force) => this.draw(force), [this.place]);
    this.words = new Parts(store, [() => this.drawChips(), () => this.drawChoice()]);
    this.drawn = "";
  }

  destroy() {
    this.redraw.destroy();
    this.words.stop();
  }

  /** Whether it has not drawn what is new yet. */
  get waits() {
    return this.words.waits;
  }

  /** @param {Moment} now */
  update(now) {
    const key = `${now.key(...DRAWN_OF)} ${this.store.selection.request} ${chosenAt(this.store)}`;
    if (key === this.drawn && !this.waits) return;
    this.drawn = key;
    this.data = model(this.store, now);
    this.draw();
  }

  draw(force = false) {
    const { data } = this;
    if (!data) return;
    const { batch, padding } = data;
    const { width } = this.redraw.size(this.place);
    if (width) this.strip.draw(batch, this.redraw.colours.get(), width, padding);
    this.strip.plane.canvas.hidden = !batch?.ids.length;
    setText(this.empty, batch?.ids.length ? "" : batch ? words.EMPTY_BATCH : data.empty);
    const rows = batch ? rowsText(batch.ids.length, padding) : "";
    setTruth(this.rows, "measured", words.ROWS_HOW, rows);
    this.strip.plane.label(`${words.BATCH}: ${rows}`);
    if (force) this.words.now();
    else this.words.update();
  }

  /** What one token was chosen from. */
  drawChoice() {
    const { data } = this;
    if (!data) return;
    const { shown } = data;
    this.candidates.update(shown);
    this.none.hidden = shown !== undefined;
    const settings = shown ? words.samplingText(data.sampling ?? {}) : "";
    setText(this.settings, settings);
    setAttribute(this.settings, "title", settings ? words.SAMPLING_HOW : null);
  }

  /** What was sampled. */
  drawChips() {
    const { data } = this;
    if (!data) return;
    const { sampled, shown } = data;
    const theme = themeOf(this.root);
    reconcile(
      this.chips,
      [...sampled.entries()],
      ([place]) => `${place}`,
      () => this.makeChip(),
      (node, [, event]) => fillChip(node, event, event === shown, theme),
    );
  }

  makeChip() {
    return el(
      "button",
      {
        class: "gb-sampled-chip",
        type: "button",
        onclick: (/** @type {MouseEvent} */ { currentTarget }) => {
          const { request } = /** @type {HTMLElement} */ (currentTarget).dataset;
          this.store.select({ request });
        },
      },
      el("b", {}),
      el("span", { class: "gb-code" }),
    );
  }
}

/**
 * @param {HTMLElement} chip @param {EventRecord} event token_sampled @param {boolean} shown
 * @param {string} theme
 */
function fillChip(chip, { facts, seq }, shown, theme) {
  const { request, token } = facts;
  const [name, text] = /** @type {any} */ (chip.children);
  setText(name, request);
  const piece = facts.texts[facts.candidates.indexOf(token)] ?? `#${token}`;
  setText(text, shortened(tokenName(piece), 12));
  setAttribute(chip, "data-request", request);
  setAttribute(chip, "data-token", String(token));
  setAttribute(chip, "title", `measured: event ${seq}, token_sampled`);
  setAttribute(chip, "aria-pressed", String(shown));
  const colour = requestColour(request, theme);
  if (chip.dataset.colour === colour) return;
  chip.dataset.colour = colour;
  chip.style.setProperty("--hue", colour);
}

/** The token that the cursor stands on, if it does on one. @param {Store} store */
function chosenAt({ records, cursor }) {
  const at = records[cursor];
  return at?.kind === "event" && at.type === "token_sampled" ? at.seq : "";
}

/** @param {number} rows @param {number} padding */
function rowsText(rows, padding) {
  return padding ? `${plural(rows, "row")} + ${padding} of padding` : plural(rows, "row");
}

/** @param {HTMLElement} root @param {Store} store */
export function mount(root, store) {
  return new RunnerRoom(root, store);
}
