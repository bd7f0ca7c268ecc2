// @ts-check
/** Who holds blocks: the requests that run, in their colours; and who shares blocks with whom. */
import { queueOf } from "../core/memory_parts.js";
import { el, reconcile, setAttribute, setText } from "../page/dom.js";
import { setTruth } from "../page/truth.js";
import { requestColour, requestLap } from "../words/colours.js";
import { count, plural } from "../words/format.js";
import { HOLDERS, SHARERS, SHARERS_HOW, sharedText } from "../words/blocks.js";
import { sharing } from "./blocks_model.js";
import { shownRequest } from "./cursor.js";

/** @import { Store } from "../core/store.js" */
/** @import { Pool } from "./blocks_model.js" */

const SHOWN = 12;
const GROUPS = 4; // of sharers that are shown
const SWATCHES = 10; // colours of one group

export class Holders {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.list = el("ul", { class: "gbp-holders-list" });
    this.more = el("span", { class: "gbp-holders-more" });
    this.groups = el("ul", { class: "gbp-holders-list" });
    this.moreGroups = el("span", { class: "gbp-holders-more" });
    this.running = row(HOLDERS, this.list, this.more);
    this.shared = row(SHARERS, this.groups, this.moreGroups);
    this.element = el("div", { class: "gbp-holders" }, this.running, this.shared);
  }

  /** @param {string} theme @param {Pool} [pool] whose sharers are wanted */
  update(theme, pool) {
    this.updateRunning(theme);
    this.shared.hidden = !pool?.sharers.size;
    if (pool && !this.shared.hidden) this.updateShared(theme, pool);
  }

  /** @param {string} theme @param {Pool} pool */
  updateShared(theme, pool) {
    const all = sharing(pool);
    const { block } = this.store.selection;
    reconcile(
      this.groups,
      all.slice(0, GROUPS),
      ({ requests }) => requests.join(),
      () => this.group(),
      (node, { requests, blocks }) => {
        const [button] = node.children;
        const [swatches, names, held] = button.children;
        button.onclick = () => this.store.select({ block: blocks[0] });
        button.title = sharedText(requests, blocks);
        const hues = requests.slice(0, SWATCHES).map((id) => requestColour(id, theme));
        reconcile(
          swatches,
          hues.map((hue, i) => [i, hue]),
          ([i]) => String(i),
          () => el("i"),
          (swatch, [, hue]) => (swatch.style.background = hue),
        );
        setText(names, `×${count(requests.length)}`);
        setTruth(held, "measured", SHARERS_HOW, plural(blocks.length, "block"));
        setAttribute(button, "aria-pressed", String(block !== null && blocks.includes(block)));
      },
    );
    const rest = all.length - GROUPS;
    setTruth(this.moreGroups, "derived", SHARERS_HOW, rest > 0 ? `+${count(rest)} more` : "");
  }

  group() {
    const swatches = el("span", { class: "gbp-sharers", "aria-hidden": "true" });
    const button = el(
      "button",
      { type: "button", class: "gbp-holder" },
      swatches,
      el("b"),
      el("span"),
    );
    return el("li", {}, button);
  }

  /** @param {string} theme */
  updateRunning(theme) {
    const state = this.store.state ?? {};
    const running = queueOf(state, "running");
    const shown = running.slice(0, SHOWN);
    this.running.hidden = running.length === 0;
    const chosen = shownRequest(this.store);
    reconcile(
      this.list,
      shown,
      (id) => id,
      (id) => this.item(id),
      (node, id) => {
        const [button] = node.children;
        const [swatch, , held] = button.children;
        swatch.style.background = requestColour(id, theme);
        setAttribute(swatch, "data-lap", requestLap(id) > 0 ? String(requestLap(id)) : null);
        const blocks = Object.keys(state.requests[id].block_table ?? {}).length;
        setTruth(held, "measured", "length of its block table", plural(blocks, "block"));
        setAttribute(button, "aria-pressed", String(id === chosen));
      },
    );
    const rest = running.length - shown.length;
    setTruth(
      this.more,
      "derived",
      `length of the running queue - the ${SHOWN} shown`,
      rest > 0 ? `+${count(rest)} more` : "",
    );
  }

  /** @param {string} id */
  item(id) {
    const button = el(
      "button",
      { type: "button", class: "gbp-holder", onclick: () => this.store.select({ request: id }) },
      el("i", { "aria-hidden": "true" }),
      el("b", { text: id }),
      el("span"),
    );
    return el("li", {}, button);
  }
}

/** @param {string} title @param {...HTMLElement} parts */
function row(title, ...parts) {
  const name = el("span", { class: "gbp-holders-title", text: title });
  return el("div", { class: "gbp-holders-row" }, name, ...parts);
}
