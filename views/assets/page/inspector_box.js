// @ts-check
/** A box in the inspector: what it is, how it stands, what happened there, where it is in code. */
import { liveOf } from "../boxes/live.js";
import { moments } from "../boxes/moment.js";
import { aboutOf, notHere } from "../words/about.js";
import { INSPECTOR, inVllm, reachText, sourcesOf } from "../words/inspector.js";
import { claimMarks } from "./claim_marks.js";
import { el, setText } from "./dom.js";
import { CandidatesPart } from "./inspector_candidates.js";
import { codeLink } from "./inspector_code.js";
import { MemorySizedPart } from "./inspector_memory.js";
import { fillEvents, headOf, notesPart } from "./inspector_parts.js";
import {
  chips,
  fillRows,
  momentName,
  pinnedWhere,
  sourceItem,
  symbolText,
} from "./inspector_rows.js";
import { isUnseen, watched } from "./sight.js";
import { truth, withFigures } from "./truth.js";

/** @import { Component } from "../core/document.js" */
/** @import { Store } from "../core/store.js" */

const MOST_EVENTS = 60;

/** @param {HTMLElement} body @param {Store} store @param {Component} item @returns {() => void} */
export function showBox(body, store, item) {
  const about = aboutOf(item.live);
  body.append(
    headOf(store, item.label, item.sublabel ?? ""),
    chips([item.type, item.type], item.tag && ["", item.tag], !item.live && ["warn", "static"]),
    claimMarks(item.claims, item.label, INSPECTOR.claims) ?? "",
    ...about.map((text, i) => el("p", { class: i ? "" : "lead", text })),
  );
  if (!item.live) body.append(el("p", { class: "lead", text: notHere(item.id) }));
  const refresh = item.live ? liveParts(body, store, item) : () => {};
  body.append(...codeParts(item), ...neighbours(store, item), ...viewNote(store, item));
  body.append(notesPart(item.notes));
  return refresh;
}

/** @param {HTMLElement} body @param {Store} store @param {Component} item @returns {() => void} */
function liveParts(body, store, item) {
  const rows = el("dl", { class: "gb-rows" });
  const events = watched(el("ul", { class: "gb-list" }));
  const caption = el("h3");
  const none = el("p", { class: "gb-note-small" });
  // What travels to the box happens here as well.
  const arriving = new Set(
    store.document.connections
      .filter((line) => line.to === item.id && line.live)
      .map((line) => line.live),
  );
  const candidates = new CandidatesPart();
  const chosen = watched(el("div", {}, candidates.element));
  const memory = item.live === "physical-vram" ? new MemorySizedPart() : null;
  body.append(el("h3", { text: INSPECTOR.liveState }), rows, chosen);
  if (memory) body.append(memory.element);
  body.append(caption, none, events, codeLink());
  return () => {
    const now = moments(store)(item.live);
    fillRows(rows, store.header ? (liveOf(item.live, now)?.rows ?? []) : []);
    const here = now.entry
      ? store
          .eventsOfStep(now.entry)
          .filter((event) => event.component === item.live || arriving.has(event.connection ?? ""))
      : [];
    const where = now.entry ? `, ${momentName(now.entry)}` : "";
    setText(caption, `${INSPECTOR.eventsHere}${where}`);
    setText(none, here.length ? "" : INSPECTOR.noEvents);
    if (!isUnseen(store, events))
      fillEvents(store, events, here, MOST_EVENTS, (event) => event.phase);
    memory?.update(store);
    if (!isUnseen(store, chosen))
      candidates.update(here.findLast((event) => event.type === "token_sampled"));
  };
}

/** @param {Component} item */
function codeParts(item) {
  const verified = item.verified_sources ?? [];
  const pinned = item.pinned_sources ?? [];
  const here = (item.code ?? []).map((code) =>
    el(
      "li",
      { class: "gb-source" },
      el("span", { class: "gb-code", text: code.path }),
      code.symbol ? el("small", { text: symbolText(code.symbol) }) : null,
    ),
  );
  const release = verified[0]?.url?.match(/\/blob\/v?([^/]+)\//)?.[1] ?? "";
  const none = verified.length || pinned.length ? "" : INSPECTOR.noSource;
  return [
    ...listed([INSPECTOR.here], here),
    ...listed(
      [inVllm(release)],
      verified.map((source) =>
        sourceItem(source.symbol, `${source.path} ${source.first}–${source.last}`, source.url),
      ),
    ),
    ...listed(
      [INSPECTOR.pinned, claimMarks(item.source_claims, sourcesOf(item.label))],
      pinned.map((source) =>
        sourceItem(source.label || source.path, pinnedWhere(source), source.url),
      ),
    ),
    none ? el("p", { class: "gb-note-small", text: none }) : "",
  ];
}

/** @param {(string|Node|null)[]} title @param {HTMLElement[]} items */
function listed(title, items) {
  if (!items.length) return [];
  return [el("h3", {}, ...title), el("ul", { class: "gb-list" }, ...items)];
}

/** @param {Store} store @param {Component} item */
function neighbours(store, item) {
  const { connections, components } = store.document;
  const name = (/** @type {string} */ id) => components.find((each) => each.id === id)?.label ?? id;
  const link = (/** @type {string} */ id) =>
    el("button", {
      class: "gb-link-box",
      type: "button",
      text: name(id),
      onclick: () => store.select({ component: id, request: null, block: null }),
    });
  const part = (/** @type {string} */ title, /** @type {string[]} */ ids) => {
    const links = [...new Set(ids)].map(link);
    if (!links.length) return [];
    return [el("h3", { text: title }), el("div", { class: "gb-links" }, ...links)];
  };
  const to = connections.filter((each) => each.from === item.id).map((each) => each.to);
  const from = connections.filter((each) => each.to === item.id).map((each) => each.from);
  const reach = reachText(item.upstream.map(name), item.downstream.map(name));
  const figure = reach && truth("illustrative", reach.how, reach.text);
  return [
    ...part(INSPECTOR.sendsTo, to),
    ...part(INSPECTOR.receivesFrom, from),
    figure ? el("p", { class: "gb-note-small" }, figure, INSPECTOR.onTheWay) : "",
  ];
}

/** @param {Store} store @param {Component} item */
function viewNote({ currentView: view }, item) {
  if (!view?.note || !view.focus.includes(item.id)) return [];
  return [el("h3", { text: view.label }), el("p", {}, ...withFigures(view.note))];
}
