// @ts-check
/**
 * The inspector: what the selected box, request or block is, how it stands at the cursor, what
 * happened there, and where it lives in code. With nothing selected: the view and the document.
 */
import { el, icon, reconcile, setAttribute, setText } from "./dom.js";
import { count, micros, plural, ranges, requestColour, truth } from "./format.js";
import { Moment, aboutOf, liveOf } from "./live.js";
import { eventPhrase } from "./sentences.js";

const CLOSE = "M4 2.6 8 6.6l4-4L13.4 4l-4 4 4 4-1.4 1.4-4-4-4 4L2.6 12l4-4-4-4z";
const MOST_EVENTS = 60;
const MOST_HISTORY = 120;
const STATUS_TONES = {
  finished: "ok",
  preempted: "warn",
  running: "backend",
  waiting: "external",
  submitted: "external",
};

/** @typedef {import("./live.js").Row} Row */
/** @typedef {import("./store.js").EventRecord} EventRecord */

export class Inspector {
  /**
   * @param {HTMLElement} root
   * @param {import("./store.js").Store} store
   */
  constructor(root, store) {
    this.store = store;
    this.body = el("div", {
      class: "gb-inspector-scroll",
      tabindex: "0",
      role: "region",
      "aria-label": "Inspector",
    });
    root.append(this.body);
    this.key = "";
    this.version = -1;
    /** @type {() => void} */
    this.refresh = () => {};
  }

  update() {
    const { store } = this;
    if (!store.document) return;
    const { component, request, block } = store.selection;
    const shown = this.what(component, request, block);
    const key = JSON.stringify([shown.key, store.view, store.header?.trace_id ?? "", store.live]);
    if (key !== this.key || this.page !== store.document) {
      this.key = key;
      this.page = store.document;
      this.body.replaceChildren();
      this.body.scrollTop = 0;
      this.refresh = shown.build();
      this.version = -1;
    }
    if (this.version === store.version) return;
    this.version = store.version;
    this.refresh();
  }

  /** @param {string|null} component @param {string|null} request @param {number|null} block */
  what(component, request, block) {
    if (request !== null)
      return { key: ["request", request], build: () => this.showRequest(request) };
    const item = this.store.document.components.find((each) => each.id === component);
    if (item) return { key: ["box", item.id], build: () => this.showBox(item) };
    if (block !== null) return { key: ["block", block], build: () => this.showBlock(block) };
    return { key: ["view"], build: () => this.showView() };
  }

  // -- a box -------------------------------------------------------------------------------------

  /** @param {any} item @returns {() => void} */
  showBox(item) {
    const about = aboutOf(item.live);
    this.body.append(
      this.head(item.label, item.sublabel),
      chips([item.type, item.type], item.tag && ["", item.tag], !item.live && ["warn", "static"]),
      ...about.map((text, i) => el("p", { class: i ? "" : "lead", text })),
    );
    if (!item.live) {
      this.body.append(
        el("p", {
          class: "lead",
          text: "Static: this component has no live counterpart in the engine. What stands here is the document's own.",
        }),
      );
    }
    const refresh = item.live ? this.liveParts(item) : () => {};
    this.codeParts(item);
    this.neighbours(item);
    this.viewNote(item);
    return refresh;
  }

  /** @param {any} item @returns {() => void} */
  liveParts(item) {
    const rows = el("dl", { class: "gb-rows" });
    const events = el("ul", { class: "gb-list" });
    const caption = el("h3");
    const none = el("p", { class: "gb-note-small" });
    this.body.append(el("h3", { text: "Live state" }), rows, caption, none, events);
    return () => {
      const { store } = this;
      const now = new Moment(store);
      fillRows(rows, store.header ? (liveOf(item.live, now)?.rows ?? []) : []);
      const here = now.entry
        ? store.eventsOfStep(now.entry).filter((event) => event.component === item.live)
        : [];
      setText(caption, now.entry ? `Events here, ${momentName(now.entry)}` : "Events here");
      setText(none, here.length ? "" : "None up to the cursor.");
      this.fillEvents(events, here, MOST_EVENTS, (event) => event.phase);
    };
  }

  /** @param {any} item */
  codeParts(item) {
    if (item.code?.length) {
      const list = item.code.map((code) =>
        el(
          "li",
          { class: "gb-source" },
          el("span", { class: "gb-code", text: code.path }),
          code.symbol ? el("small", { text: symbolText(code.symbol) }) : null,
        ),
      );
      this.body.append(
        el("h3", { text: "Here, in this project" }),
        el("ul", { class: "gb-list" }, ...list),
      );
    }
    const verified = item.verified_sources ?? [];
    if (verified.length) {
      const release = verified[0].url?.match(/\/blob\/v?([^/]+)\//)?.[1] ?? "";
      this.body.append(
        el("h3", { text: `In vLLM ${release}`.trim() }),
        el(
          "ul",
          { class: "gb-list" },
          ...verified.map((source) =>
            sourceItem(source.symbol, `${source.path} ${source.first}–${source.last}`, source.url),
          ),
        ),
      );
    }
    const pinned = item.pinned_sources ?? [];
    if (pinned.length) {
      const items = pinned.map((source) =>
        sourceItem(
          source.label || source.path,
          `${source.path}${source.line ? ` ${source.line}–${source.end_line ?? source.line}` : ""} · ${source.status}`,
          source.url,
        ),
      );
      this.body.append(
        el("h3", { text: "Pinned by the document" }),
        el("ul", { class: "gb-list" }, ...items),
      );
    }
    if (!verified.length && !pinned.length) {
      this.body.append(
        el("p", {
          class: "gb-note-small",
          text: "The document gives no source for this component.",
        }),
      );
    }
  }

  /** @param {any} item */
  neighbours(item) {
    const { connections, components } = this.store.document;
    const name = (/** @type {string} */ id) =>
      components.find((each) => each.id === id)?.label ?? id;
    const link = (/** @type {string} */ id) =>
      el("button", {
        class: "gb-link-box",
        type: "button",
        text: name(id),
        onclick: () => this.store.select({ component: id, request: null, block: null }),
      });
    const part = (/** @type {string} */ title, /** @type {string[]} */ ids) => {
      if (ids.length)
        this.body.append(
          el("h3", { text: title }),
          el("div", { class: "gb-links" }, ...ids.map(link)),
        );
    };
    part("Sends to", [
      ...new Set(connections.filter((each) => each.from === item.id).map((each) => each.to)),
    ]);
    part("Receives from", [
      ...new Set(connections.filter((each) => each.to === item.id).map((each) => each.from)),
    ]);
    const reach = [
      (item.upstream ?? []).length && `${plural(item.upstream.length, "box")} upstream`,
      (item.downstream ?? []).length && `${plural(item.downstream.length, "box")} downstream`,
    ].filter(Boolean);
    if (reach.length) {
      const title = [
        `upstream: ${(item.upstream ?? []).map(name).join(", ") || "none"}`,
        `downstream: ${(item.downstream ?? []).map(name).join(", ") || "none"}`,
      ].join("\n");
      this.body.append(
        el("p", {
          class: "gb-note-small",
          text: `On the way of a request: ${reach.join(", ")}.`,
          title,
        }),
      );
    }
  }

  /** @param {any} item */
  viewNote(item) {
    const view = this.store.currentView;
    if (!view?.note || !view.focus.includes(item.id)) return;
    this.body.append(el("h3", { text: view.label }), el("p", { text: view.note }));
  }

  // -- a request ---------------------------------------------------------------------------------

  /** @param {string} id @returns {() => void} */
  showRequest(id) {
    const colour = el("span", {
      style: "display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:8px",
    });
    const head = this.head(id, "");
    head.querySelector("h2")?.prepend(colour);
    const status = el("div", { class: "gb-chips" });
    const gone = el("p", { class: "gb-note-small" });
    const abort = el("button", {
      class: "gb-button is-danger",
      type: "button",
      text: "Abort this request",
      onclick: () => this.abort(id, abort),
    });
    const prompt = el("pre", { class: "gb-text-box", tabindex: "0", "aria-label": "Prompt" });
    const output = el("pre", { class: "gb-text-box", tabindex: "0", "aria-label": "Output" });
    const rows = el("dl", { class: "gb-rows" });
    const table = el("p", { class: "gb-code" });
    const history = el("ul", { class: "gb-list" });
    this.body.append(
      head,
      status,
      gone,
      el("h3", { text: "Prompt" }),
      prompt,
      el("h3", { text: "Output so far" }),
      output,
      el("h3", { text: "Live state" }),
      rows,
      el("h3", { text: "Block table" }),
      table,
      el("p", {}, abort),
      el("h3", { text: "What happened to it" }),
      history,
    );
    return () => {
      const { store } = this;
      const request = store.state.requests?.[id];
      colour.style.background = requestColour(id, themeOf(this.body));
      const events = store.historyOf(id);
      status.replaceChildren(
        ...chips(
          [STATUS_TONES[request?.status] ?? "", statusText(request)],
          request?.source && ["", sourceText(request.source)],
        ).children,
      );
      setText(
        gone,
        request
          ? ""
          : "At the cursor this request is not there: not yet submitted, or long finished.",
      );
      setText(prompt, promptText(request));
      setText(output, outputText(request));
      fillRows(rows, request ? requestRows(request, events) : []);
      setText(table, tableText(request));
      abort.hidden = !store.live || !request || request.status === "finished";
      setAttribute(abort, "disabled", store.canCommand ? null : "");
      abort.title = store.whyNoCommand;
      this.fillEvents(
        history,
        events,
        MOST_HISTORY,
        (event) => `step ${event.step} · ${event.phase}`,
      );
    };
  }

  /** @param {string} id @param {HTMLElement} button */
  async abort(id, button) {
    setAttribute(button, "disabled", "");
    await this.store.command("abort", { request: id });
    setAttribute(button, "disabled", null);
  }

  // -- a block -----------------------------------------------------------------------------------

  /** @param {number} id @returns {() => void} */
  showBlock(id) {
    const rows = el("dl", { class: "gb-rows" });
    const holders = el("div", { class: "gb-links" });
    this.body.append(
      this.head(`Block ${id}`, "of the KV pool"),
      el("h3", { text: "Live state" }),
      rows,
      el("h3", { text: "Held by" }),
      holders,
    );
    return () => {
      const { store } = this;
      const block = store.state.blocks?.[id];
      fillRows(rows, block ? blockRows(block) : []);
      const ids = Object.keys(store.state.requests ?? {}).filter((each) =>
        Object.values(store.state.requests[each].block_table ?? {}).includes(id),
      );
      const button = (/** @type {string} */ each) =>
        el("button", {
          class: "gb-link-box",
          type: "button",
          text: each,
          onclick: () => store.select({ request: each }),
        });
      reconcile(
        holders,
        ids.length ? ids : [""],
        (each) => each,
        (each) => (each ? button(each) : el("p", { class: "gb-note-small", text: "nobody" })),
      );
    };
  }

  // -- nothing selected --------------------------------------------------------------------------

  /** @returns {() => void} */
  showView() {
    const { document: page, currentView: view } = this.store;
    this.body.append(el("h2", { text: view?.label ?? page.meta?.title ?? "The map" }));
    if (view?.note) this.body.append(el("p", { class: "lead", text: view.note }));
    this.body.append(
      el("p", {
        class: "gb-note-small",
        text: "Select a box to see its live state, its code here and its place in vLLM.",
      }),
    );
    for (const card of page.cards ?? []) {
      this.body.append(
        el(
          "div",
          { class: "gb-note-card", "data-dot": card.dot },
          el("h4", { text: card.title }),
          el("ul", {}, ...card.items.map((text) => el("li", { text }))),
        ),
      );
    }
    this.body.append(el("h3", { text: "How to read the numbers" }), truthLegend());
    if (page.meta?.title)
      this.body.append(el("h3", { text: "Document" }), el("p", { text: page.meta.title }));
    return () => {};
  }

  // -- shared parts ------------------------------------------------------------------------------

  /** @param {string} title @param {string} subtitle */
  head(title, subtitle) {
    const close = () => this.store.select({ component: null, request: null, block: null });
    return el(
      "div",
      { class: "gb-inspector-head" },
      el(
        "div",
        {},
        el("h2", { text: title }),
        subtitle ? el("p", { text: subtitle, style: "margin-top:1px" }) : null,
      ),
      el(
        "button",
        {
          class: "gb-button is-quiet",
          type: "button",
          title: "Deselect (Esc)",
          "aria-label": "Deselect",
          onclick: close,
        },
        icon(CLOSE),
      ),
    );
  }

  /**
   * @param {HTMLElement} list @param {EventRecord[]} events @param {number} most
   * @param {(event: EventRecord) => string} note
   */
  fillEvents(list, events, most, note) {
    const { store } = this;
    const recent = events.slice(-most).reverse();
    const at = store.records[store.cursor];
    reconcile(
      list,
      recent,
      (event) => `${store.header.trace_id} ${event.seq}`,
      (event) =>
        el(
          "li",
          {},
          el(
            "button",
            {
              class: "gb-event-button",
              type: "button",
              "data-seq": event.seq,
              onclick: () => store.seek(store.indexOf(event)),
            },
            eventPhrase(event),
            el("small", { text: note(event) }),
          ),
        ),
      (node, event) =>
        setAttribute(node.firstElementChild, "aria-current", event === at ? "true" : null),
    );
    if (events.length > most) list.append(moreItem(events.length - most));
  }
}

// --- texts and rows -----------------------------------------------------------------------------

/** @param {number} left */
function moreItem(left) {
  const item = el("li", { class: "gb-note-small", text: `and ${count(left)} earlier` });
  /** @type {any} */ (item).__key = "more";
  return item;
}

/** @param {HTMLElement} list @param {Row[]} rows */
function fillRows(list, rows) {
  reconcile(
    list,
    rows,
    (row) => row.name,
    (row) =>
      el(
        "div",
        { class: "gb-row" },
        el("dt", { text: row.name }),
        el("dd", {}, truth(row.truth, row.how, row.value)),
      ),
    (node, row) => {
      const span = node.lastElementChild.firstElementChild;
      setText(span, row.value);
      setAttribute(span, "title", `${row.truth}: ${row.how}`);
    },
  );
}

/** @param {...([string, string]|false|""|undefined|null)} items tone and text */
function chips(...items) {
  const made = items.map((item) =>
    item ? el("span", { class: "gb-chip", "data-tone": item[0], text: item[1] }) : null,
  );
  return el("div", { class: "gb-chips" }, ...made);
}

/** @param {string} title @param {string} where @param {string|null} url */
function sourceItem(title, where, url) {
  const name = url
    ? el("a", {
        href: url,
        target: "_blank",
        rel: "noreferrer noopener",
        class: "gb-code",
        text: title,
      })
    : el("span", { class: "gb-code", text: title });
  return el("li", { class: "gb-source" }, name, el("small", { text: where }));
}

/** @param {import("./store.js").StepEntry} entry */
function momentName(entry) {
  return entry.command ? `between steps` : `step ${entry.step}`;
}

/** @param {Element} node */
function themeOf(node) {
  return node.closest("[data-theme]")?.getAttribute("data-theme") ?? "light";
}

function truthLegend() {
  const rows = [
    ["measured", "from the running engine", "read from the engine's log"],
    [
      "derived",
      "computed from measured ones; the formula shows on hover",
      "the formula stands here",
    ],
    ["illustrative", "from the document, never from the engine", "a figure of the document"],
  ];
  return el(
    "ul",
    { class: "gb-list" },
    ...rows.map(([kind, text, how]) =>
      el("li", { class: "gb-source" }, truth(/** @type {any} */ (kind), how, kind), `: ${text}`),
    ),
  );
}

/** @param {any} request */
function statusText(request) {
  if (!request) return "not in the state";
  return request.finish_reason ? `finished: ${request.finish_reason}` : request.status;
}

/** @param {string} symbol */
function symbolText(symbol) {
  return `${/^[A-Z]/.test(symbol) ? "class" : "function"} ${symbol}`;
}

/** @param {string} source */
function sourceText(source) {
  return source === "http" ? "sent over HTTP" : source === "page" ? "sent from this page" : source;
}

/** @param {any} request */
function promptText(request) {
  if (!request) return "";
  if (request.prompt) return request.prompt;
  if (request.prompt_pieces) return request.prompt_pieces.join("");
  return `token ids ${(request.prompt_token_ids ?? []).slice(0, 200).join(" ")}`;
}

/** @param {any} request */
function outputText(request) {
  const ids = Object.values(request?.output_token_ids ?? {});
  if (request?.output_pieces) return Object.values(request.output_pieces).join("");
  return ids.length ? `token ids ${ids.slice(-200).join(" ")}` : "(nothing yet)";
}

/** @param {any} request */
function tableText(request) {
  const blocks = Object.values(request?.block_table ?? {});
  if (!blocks.length) return "holds no blocks";
  return `${plural(blocks.length, "block")}: ${ranges(/** @type {number[]} */ (blocks), 24)}`;
}

/** @param {any} block @returns {Row[]} */
function blockRows(block) {
  const how = "the block's record in the engine's state";
  const free = block.ref_cnt === 0;
  /** @type {Row[]} */
  const rows = [
    {
      name: "held by",
      value: block.null_block ? "the null block" : plural(block.ref_cnt, "request"),
      truth: "measured",
      how: `ref_cnt: ${how}`,
    },
  ];
  rows.push({
    name: "content",
    value: block.hash ? `cached ${block.hash}` : "not in the prefix cache",
    truth: "measured",
    how,
  });
  if (free)
    rows.push({
      name: "in the free queue",
      value: `after ${block.prev ?? "nobody"}, before ${block.next ?? "nobody"}`,
      truth: "measured",
      how,
    });
  return rows;
}

/** @param {any} request @param {EventRecord[]} events @returns {Row[]} */
function requestRows(request, events) {
  const how = "the request's record in the engine's state";
  const outputs = Object.keys(request.output_token_ids ?? {}).length;
  /** @type {Row[]} */
  const rows = [
    { name: "prompt tokens", value: count(request.num_prompt_tokens), truth: "measured", how },
    {
      name: "output tokens",
      value: `${outputs} / ${request.max_tokens}`,
      truth: "measured",
      how: "tokens generated, and max_tokens",
    },
    {
      name: "computed",
      value: `${request.num_computed_tokens} / ${request.num_tokens}`,
      truth: "measured",
      how: "num_computed_tokens / num_tokens",
    },
    {
      name: "prefix hit",
      value: plural(request.hit_tokens ?? 0, "token"),
      truth: "measured",
      how: "hit at the latest admission",
    },
    { name: "preempted", value: `${request.num_preemptions ?? 0} ×`, truth: "measured", how },
    ...timeRows(events),
  ];
  if (request.priority)
    rows.push({ name: "priority", value: String(request.priority), truth: "measured", how });
  return rows;
}

/** @param {EventRecord[]} events of one request @returns {Row[]} */
function timeRows(events) {
  const began = events.find((event) => event.type === "request_submitted");
  const texts = events.filter((event) => event.type === "text_emitted");
  const note = "from the log's clock; time in which the engine stood paused counts";
  /** @type {Row[]} */
  const rows = [];
  if (began && texts.length) {
    rows.push({
      name: "time to first token",
      value: micros(texts[0].t_us - began.t_us),
      truth: "measured",
      how: `first text_emitted - request_submitted, ${note}`,
    });
  }
  if (texts.length > 1) {
    const mean = (texts[texts.length - 1].t_us - texts[0].t_us) / (texts.length - 1);
    rows.push({
      name: "mean time between tokens",
      value: micros(mean),
      truth: "derived",
      how: `(last - first text_emitted) ÷ ${texts.length - 1}, ${note}`,
    });
  }
  return rows;
}
