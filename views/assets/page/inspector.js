// @ts-check
/**
 * The inspector: what the selected box, request or block is, how it stands at the cursor, what
 * happened there, and where it lives in code. With nothing selected: the view and the document.
 */
import { aboutOf } from "../boxes/about.js";
import { liveOf, moments } from "../boxes/live.js";
import { RequestHistory, blockHistory, stepHistory } from "../core/history.js";
import { traceIndex } from "../core/trace_index.js";
import { blockFacts, poolAt } from "../panels/blocks_model.js";
import { factRows } from "../panels/blocks_words.js";
import { requestColour } from "../words/colours.js";
import { eventPhrase } from "../words/events.js";
import { plural } from "../words/format.js";
import { el, icon, reconcile, setAttribute, setText } from "./dom.js";
import { CandidatesPart } from "./inspector_candidates.js";
import { DraftsPart } from "./inspector_drafts.js";
import { HistoryPart } from "./inspector_history.js";
import { MemorySizedPart } from "./inspector_memory.js";
import {
  chips,
  fillRows,
  momentName,
  moreItem,
  outputText,
  pinnedWhere,
  promptText,
  requestRows,
  sequenceText,
  sourceItem,
  sourceText,
  statusText,
  symbolText,
  tableText,
  truthLegend,
} from "./inspector_rows.js";
import { themeOf } from "./theme.js";
import { setTruth, truth, withFigures } from "./truth.js";

/** @import { Component, Note } from "../core/document.js" */
/** @import { EventRecord } from "../core/records.js" */
/** @import { Store } from "../core/store.js" */

const CLOSE = "M4 2.6 8 6.6l4-4L13.4 4l-4 4 4 4-1.4 1.4-4-4-4 4L2.6 12l4-4-4-4z";
const MOST_EVENTS = 60;
const MOST_DECISIONS = 20;
/** @type {Record<string, string>} */
const STATUS_TONES = {
  finished: "ok",
  preempted: "warn",
  running: "backend",
  waiting: "external",
  submitted: "external",
};

export class Inspector {
  /**
   * @param {HTMLElement} root
   * @param {Store} store
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
    if (block !== null) return { key: ["block", block], build: () => this.showBlock(block) };
    if (request !== null)
      return { key: ["request", request], build: () => this.showRequest(request) };
    const item = this.store.document.components.find((each) => each.id === component);
    if (item) return { key: ["box", item.id], build: () => this.showBox(item) };
    return { key: ["view"], build: () => this.showView() };
  }

  // -- a box -------------------------------------------------------------------------------------

  /** @param {Component} item @returns {() => void} */
  showBox(item) {
    const about = aboutOf(item.live);
    this.body.append(
      this.head(item.label, item.sublabel ?? ""),
      chips([item.type, item.type], item.tag && ["", item.tag], !item.live && ["warn", "static"]),
      ...about.map((text, i) => el("p", { class: i ? "" : "lead", text })),
    );
    if (!item.live) {
      this.body.append(
        el("p", {
          class: "lead",
          text:
            "Static: this component has no live counterpart in the engine. What stands here is " +
            "the document's own.",
        }),
      );
    }
    const refresh = item.live ? this.liveParts(item) : () => {};
    this.codeParts(item);
    this.neighbours(item);
    this.viewNote(item);
    this.notes(item.notes);
    return refresh;
  }

  /** @param {Component} item @returns {() => void} */
  liveParts(item) {
    const rows = el("dl", { class: "gb-rows" });
    const events = el("ul", { class: "gb-list" });
    const caption = el("h3");
    const none = el("p", { class: "gb-note-small" });
    // What travels to the box happens here as well.
    const arriving = new Set(
      this.store.document.connections
        .filter((line) => line.to === item.id && line.live)
        .map((line) => line.live),
    );
    const candidates = new CandidatesPart();
    const memory = item.live === "physical-vram" ? new MemorySizedPart() : null;
    this.body.append(el("h3", { text: "Live state" }), rows, candidates.element);
    if (memory) this.body.append(memory.element);
    this.body.append(caption, none, events);
    return () => {
      const { store } = this;
      const now = moments(store)(item.live);
      fillRows(rows, store.header ? (liveOf(item.live, now)?.rows ?? []) : []);
      const here = now.entry
        ? store
            .eventsOfStep(now.entry)
            .filter(
              (event) => event.component === item.live || arriving.has(event.connection ?? ""),
            )
        : [];
      setText(caption, now.entry ? `Events here, ${momentName(now.entry)}` : "Events here");
      setText(none, here.length ? "" : "None up to the cursor.");
      this.fillEvents(events, here, MOST_EVENTS, (event) => event.phase);
      memory?.update(store);
      candidates.update(here.findLast((event) => event.type === "token_sampled"));
    };
  }

  /** @param {Component} item */
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
        sourceItem(source.label || source.path, pinnedWhere(source), source.url),
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

  /** @param {Component} item */
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
      item.upstream.length && `${plural(item.upstream.length, "box")} upstream`,
      item.downstream.length && `${plural(item.downstream.length, "box")} downstream`,
    ].filter(Boolean);
    if (reach.length) {
      const title = [
        `upstream: ${item.upstream.map(name).join(", ") || "none"}`,
        `downstream: ${item.downstream.map(name).join(", ") || "none"}`,
      ].join("\n");
      this.body.append(
        el(
          "p",
          { class: "gb-note-small" },
          truth("illustrative", `the document's connections\n${title}`, `${reach.join(", ")}`),
          " on the way of a request.",
        ),
      );
    }
  }

  /** @param {Component} item */
  viewNote(item) {
    const view = this.store.currentView;
    if (!view?.note || !view.focus.includes(item.id)) return;
    this.body.append(el("h3", { text: view.label }), el("p", {}, ...withFigures(view.note)));
  }

  /** What can be said against a part of the document. @param {Note[]} [notes] */
  notes(notes) {
    if (!notes?.length) return;
    const items = notes.map((note) =>
      el(
        "li",
        { class: "gb-source" },
        el("span", { class: "gb-code", text: `${note.code} ${note.path}` }),
        el("span", { text: note.message }),
        el("small", { text: `To mend it: ${note.fix}` }),
      ),
    );
    const title = `${plural(notes.length, "note")} for the document's author`;
    this.body.append(
      el("details", {}, el("summary", { text: title }), el("ul", { class: "gb-list" }, ...items)),
    );
  }

  // -- a request ---------------------------------------------------------------------------------

  /** @param {string} id @returns {() => void} */
  showRequest(id) {
    const parts = this.requestParts(id);
    this.body.append(
      parts.head,
      parts.status,
      parts.gone,
      ...parts.history.elements,
      el("h3", { text: "Prompt" }),
      parts.prompt,
      el("h3", { text: "Output so far" }),
      parts.output,
      parts.drafts.element,
      parts.candidates.element,
      el("h3", { text: "Live state" }),
      parts.rows,
      el("h3", { text: "Block table" }),
      parts.table,
      el("p", {}, parts.abort),
    );
    return () => this.refreshRequest(id, parts);
  }

  /** @param {string} id */
  requestParts(id) {
    const colour = el("span", { class: "gb-swatch" });
    const head = this.head(id, "");
    head.querySelector("h2")?.prepend(colour);
    const box = (/** @type {string} */ name) =>
      el("pre", { class: "gb-text-box", tabindex: "0", "aria-label": name });
    const abort = el("button", {
      class: "gb-button is-danger",
      type: "button",
      text: "Abort this request",
      onclick: () => this.abort(id, abort),
    });
    return {
      head,
      colour,
      abort,
      status: el("div", { class: "gb-chips" }),
      gone: el("p", { class: "gb-note-small" }),
      prompt: box("Prompt"),
      output: box("Output"),
      drafts: new DraftsPart(),
      candidates: new CandidatesPart(),
      rows: el("dl", { class: "gb-rows" }),
      table: el("p", { class: "gb-code" }),
      history: this.requestHistory(id),
    };
  }

  /** @param {string} id */
  requestHistory(id) {
    const history = new RequestHistory(id);
    const read = (/** @type {number} */ most) => history.read(this.store, most);
    return new HistoryPart(this.store, "Why it stands as it does", read, { request: id });
  }

  /** @param {string} id @param {ReturnType<Inspector["requestParts"]>} parts */
  refreshRequest(id, parts) {
    const { store } = this;
    const request = store.state.requests?.[id];
    parts.colour.style.background = requestColour(id, themeOf(this.body));
    parts.status.replaceChildren(
      ...chips(
        [STATUS_TONES[request?.status] ?? "", statusText(request)],
        request?.source && ["", sourceText(request.source)],
        request?.parent && ["", sequenceText(id, request.parent)],
      ).children,
    );
    const gone = "At the cursor this request is not there: not yet submitted, or long finished.";
    setText(parts.gone, request ? "" : gone);
    setText(parts.prompt, promptText(request));
    setText(parts.output, outputText(request));
    fillRows(parts.rows, request ? requestRows(store, id, request) : []);
    setTruth(parts.table, "measured", "block_table in the request's record", tableText(request));
    parts.abort.hidden = !store.live || !request || request.status === "finished";
    setAttribute(parts.abort, "disabled", store.canCommand ? null : "");
    parts.abort.title = store.whyNoCommand;
    parts.history.update();
    parts.drafts.update(store, id);
    const events = traceIndex(store).historyOf(store, id);
    parts.candidates.update(events.findLast((event) => event.type === "token_sampled"));
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
    const read = (/** @type {number} */ most) => blockHistory(this.store, id, most);
    const history = new HistoryPart(this.store, "Why it holds what it holds", read, { block: id });
    this.body.append(
      this.head(`Block ${id}`, "of the KV pool"),
      el("h3", { text: "Live state" }),
      rows,
      el("h3", { text: "Held by" }),
      holders,
      ...history.elements,
    );
    return () => {
      const { store } = this;
      history.update();
      const pool = poolAt(store);
      const known = id < pool.size;
      const facts = known ? blockFacts(store, pool, id) : null;
      fillRows(rows, facts ? factRows(facts, pool.blockSize) : []);
      const ids = facts ? facts.owners.map((owner) => owner.request) : [];
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
    if (view?.note) this.body.append(el("p", { class: "lead" }, ...withFigures(view.note)));
    this.body.append(
      el("p", {
        class: "gb-note-small",
        text: page.live
          ? "Select a box to see its live state, its code here and its place in vLLM."
          : "Select a box to see what the document says of it, and what it is connected with.",
      }),
    );
    const history = page.live ? this.stepHistory() : null;
    if (history) this.body.append(...history.elements);
    for (const card of page.cards ?? []) {
      this.body.append(
        el(
          "div",
          { class: "gb-note-card", "data-dot": card.dot },
          el("h4", { text: card.title }),
          el("ul", {}, ...card.items.map((text) => el("li", {}, ...withFigures(text)))),
        ),
      );
    }
    this.notes(view?.notes);
    this.body.append(el("h3", { text: "How to read the numbers" }), truthLegend());
    if (page.meta?.title)
      this.body.append(el("h3", { text: "Document" }), el("p", { text: page.meta.title }));
    return () => history?.update();
  }

  /** What was decided in the step on show, in order. */
  stepHistory() {
    const { store } = this;
    const read = (/** @type {number} */ most) =>
      stepHistory(store, store.entryOnShow()?.step ?? -1, most);
    const about = { most: MOST_DECISIONS, rest: "decision" };
    return new HistoryPart(store, "Why this step looks as it does", read, about);
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
