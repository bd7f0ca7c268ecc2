// @ts-check
/** CUDA graph & kernel execution: how a step's batch ran and why, and where its time went. */
import { Store } from "../core/store.js";
import { traceIndex } from "../core/trace_index.js";
import { el, setText, svg } from "../page/dom.js";
import { onRequestColour, requestColour } from "../words/colours.js";
import { bytes, count, micros, percent, plural, ranges, truth } from "../words/format.js";
import { BatchStrip } from "./graph_batch.js";
import { HistoryStrip } from "./graph_history.js";
import { model, sentence } from "./graph_model.js";
import { Sentence, Twin, redrawOnChange, section } from "./parts.js";

/** @import { Model, ModuleTime, PagesRead } from "./graph_model.js" */

const MAX_PAGES = 48;

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
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.store = store;
    this.sentence = new Sentence(store, sentence);
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
    const sum = modules.reduce((all, item) => all + item.us, 0);
    const where =
      data.device === "cpu" || data.device === ""
        ? "measured on the CPU"
        : `measured on ${data.device}`;
    const rows = modules.filter((item) => item.us > 0);
    const parts = [];
    if (forward?.us !== undefined && rows.length) {
      parts.push(
        el(
          "p",
          { class: "gbp-total" },
          truth("measured", `forward_run, ${where}`, micros(forward.us)),
          el("small", {
            text: ` ${where}: ${plural(forward.tokens, "token")} through ${plural(forward.layers, "layer")}`,
          }),
        ),
      );
      parts.push(
        el(
          "div",
          { class: "gbp-stack", role: "presentation" },
          ...rows.map((item) => this.segment(item, sum)),
        ),
      );
      parts.push(
        el("ul", { class: "gbp-kinds" }, ...rows.map((item) => this.kind(item, sum, where))),
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

  /** @param {ModuleTime} item @param {number} sum */
  segment(item, sum) {
    const part = el("i", { title: `measured: ${item.kind} ${micros(item.us)}` });
    part.style.flexGrow = String(item.us / sum);
    part.style.background = kindColour(item.kind);
    return part;
  }

  /**
   * @param {ModuleTime} item @param {number} sum
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
   * @param {PagesRead} shown @param {Model} data @param {any} colours
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
 * @param {HTMLElement} root @param {Store} store
 * @returns {{update(): void, destroy(): void, panel: object}}
 */
export function mount(root, store) {
  const panel = new GraphPanel(root, store);
  panel.update(true);
  return { update: () => panel.update(), destroy: () => panel.destroy(), panel };
}
