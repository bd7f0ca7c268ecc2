// @ts-check
/**
 * With nothing selected: why the step on show looks as it does, then the view and the document.
 * Before the first decision there is only the latter.
 */
import { stepHistory } from "../core/history.js";
import { INSPECTOR } from "../words/inspector.js";
import { claimMarks } from "./claim_marks.js";
import { el } from "./dom.js";
import { HistoryPart } from "./inspector_history.js";
import { notesPart } from "./inspector_parts.js";
import { truthLegend } from "./inspector_rows.js";
import { withFigures } from "./truth.js";

/** @import { Store } from "../core/store.js" */

const MOST_DECISIONS = 20;
const ROOM = 8; // pixels around the decision at the cursor

/** @param {HTMLElement} body @param {Store} store @returns {() => void} */
export function showView(body, store) {
  const { document: page, currentView: view } = store;
  const label = el("h2", { text: view?.label ?? page.meta?.title ?? INSPECTOR.map });
  const choose = page.live ? INSPECTOR.selectLive : INSPECTOR.selectStatic;
  const hint = el("p", { class: "gb-note-small", text: choose });
  body.append(label);
  if (view?.note) body.append(el("p", { class: "lead" }, ...withFigures(view.note)));
  body.append(hint);
  const why = page.live ? stepWhy(store) : null;
  for (const card of page.cards ?? []) {
    body.append(
      el(
        "div",
        { class: "gb-note-card", "data-dot": card.dot },
        el("h3", { text: card.title }, claimMarks(card.claims?.[0], card.title)),
        el(
          "ul",
          {},
          ...card.items.map((text, i) =>
            el("li", {}, ...withFigures(text), claimMarks(card.claims?.[i + 1], card.title)),
          ),
        ),
      ),
    );
  }
  const around = [...(view?.claims ?? []), ...(page.meta?.claims ?? [])];
  const title = page.meta?.title ?? "the map";
  body.append(claimMarks(around, title, INSPECTOR.claimsOfMap) ?? "", notesPart(view?.notes));
  body.append(el("h3", { text: INSPECTOR.truth }), truthLegend());
  if (page.meta?.title)
    body.append(el("h3", { text: INSPECTOR.document }), el("p", { text: page.meta.title }));
  if (!why) return () => {};
  hint.after(why.element);
  let first = false;
  let cursor = store.cursor;
  return () => {
    why.history.update();
    const decided = why.history.list.childElementCount > 0;
    if (decided !== first && decided) label.before(why.element);
    else if (decided !== first) hint.after(why.element);
    first = decided;
    const { playing, walking } = store.clock;
    if (playing || walking || cursor === store.cursor) return;
    cursor = store.cursor;
    bringIntoSight(body, why.history.list);
  };
}

/**
 * The decision at the cursor, unless somebody has scrolled on to something else.
 * @param {HTMLElement} body that scrolls @param {HTMLElement} list of decisions
 */
function bringIntoSight(body, list) {
  const line = list.querySelector("[aria-current=true]")?.parentElement;
  if (!line || body.scrollHeight <= body.clientHeight) return;
  const [seen, whole, now] = [body, list, line].map((node) => node.getBoundingClientRect());
  if (whole.bottom < seen.top) return;
  if (now.bottom > seen.bottom) body.scrollTop += now.bottom - seen.bottom + ROOM;
  else if (now.top < seen.top) body.scrollTop -= seen.top - now.top + ROOM;
}

/** What was decided in the step on show, in order. @param {Store} store */
function stepWhy(store) {
  const read = (/** @type {number} */ most) =>
    stepHistory(store, store.entryOnShow()?.step ?? -1, most);
  const about = { most: MOST_DECISIONS, rest: "decision", heading: /** @type {const} */ ("h2") };
  const history = new HistoryPart(store, INSPECTOR.whyStep, read, about);
  return { history, element: el("section", { class: "gb-why" }, ...history.elements) };
}
