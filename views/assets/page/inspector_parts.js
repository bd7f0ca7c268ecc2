// @ts-check
/** What the inspector's views share: the head, a list of events, the notes for an author. */
import { eventPhrase } from "../words/events.js";
import { INSPECTOR, mendText, notesText } from "../words/inspector.js";
import { el, icon, reconcile, setAttribute } from "./dom.js";
import { moreItem } from "./inspector_rows.js";

/** @import { Note } from "../core/document.js" */
/** @import { EventRecord } from "../core/records.js" */
/** @import { Store } from "../core/store.js" */

const CLOSE = "M4 2.6 8 6.6l4-4L13.4 4l-4 4 4 4-1.4 1.4-4-4-4 4L2.6 12l4-4-4-4z";

/** @param {Store} store @param {string} title @param {string} subtitle */
export function headOf(store, title, subtitle) {
  const close = () => store.select({ component: null, request: null, block: null });
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
        title: INSPECTOR.deselectTitle,
        "aria-label": INSPECTOR.deselect,
        onclick: close,
      },
      icon(CLOSE),
    ),
  );
}

/**
 * The newest first, each with a link to its moment.
 * @param {Store} store @param {HTMLElement} list @param {EventRecord[]} events
 * @param {number} most @param {(event: EventRecord) => string} note
 */
export function fillEvents(store, list, events, most, note) {
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
            onclick: () => store.jump(store.indexOf(event)),
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

/** What can be said against a part of the document. @param {Note[]} [notes] */
export function notesPart(notes) {
  if (!notes?.length) return "";
  const items = notes.map((note) =>
    el(
      "li",
      { class: "gb-source" },
      el("span", { class: "gb-code", text: `${note.code} ${note.path}` }),
      el("span", { text: note.message }),
      el("small", { text: mendText(note.fix) }),
    ),
  );
  const summary = el("summary", { text: notesText(notes.length) });
  return el("details", {}, summary, el("ul", { class: "gb-list" }, ...items));
}
