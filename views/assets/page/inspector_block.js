// @ts-check
/** A block of the pool in the inspector: how it stands, who holds it, and why. */
import { blockHistory } from "../core/history.js";
import { blockFacts, poolAt } from "../panels/blocks_model.js";
import { factRows } from "../panels/blocks_words.js";
import { INSPECTOR, blockName } from "../words/inspector.js";
import { el, reconcile } from "./dom.js";
import { codeLink } from "./inspector_code.js";
import { HistoryPart } from "./inspector_history.js";
import { headOf } from "./inspector_parts.js";
import { fillRows } from "./inspector_rows.js";

/** @import { Store } from "../core/store.js" */

/** @param {HTMLElement} body @param {Store} store @param {number} id @returns {() => void} */
export function showBlock(body, store, id) {
  const rows = el("dl", { class: "gb-rows" });
  const holders = el("div", { class: "gb-links" });
  const read = (/** @type {number} */ most) => blockHistory(store, id, most);
  const history = new HistoryPart(store, INSPECTOR.whyBlock, read, { block: id });
  body.append(
    headOf(store, blockName(id), INSPECTOR.ofThePool),
    el("h3", { text: INSPECTOR.liveState }),
    rows,
    el("h3", { text: INSPECTOR.heldBy }),
    holders,
    ...history.elements,
    codeLink(),
  );
  const button = (/** @type {string} */ request) =>
    el("button", {
      class: "gb-link-box",
      type: "button",
      text: request,
      onclick: () => store.select({ request }),
    });
  return () => {
    history.update();
    const pool = poolAt(store);
    const facts = id < pool.size ? blockFacts(store, pool, id) : null;
    fillRows(rows, facts ? factRows(facts, pool.blockSize) : []);
    const ids = facts ? facts.owners.map((owner) => owner.request) : [];
    reconcile(
      holders,
      ids.length ? ids : [""],
      (each) => each,
      (each) =>
        each ? button(each) : el("p", { class: "gb-note-small", text: INSPECTOR.nobody }),
    );
  };
}
