// @ts-check
/** Keys and values beside fp32: what rounding did to a request, and the room in each dtype. */
import { lastAside, wentOnSince } from "../core/asides_index.js";
import { el, reconcile, setAttribute, setText } from "../page/dom.js";
import { setTruth, truth } from "../page/truth.js";
import { nobodyAsked } from "../words/empty.js";
import { bytes, count, micros, plural } from "../words/format.js";
import { errorHow, errorText, mean, precisionWords, roomByDtype } from "../words/precision.js";
import { shownRequest } from "./cursor.js";
import { legend, remake, section } from "./parts.js";

/** @import { EventRecord } from "../core/records.js" */
/** @import { Store } from "../core/store.js" */
/** @import { Room } from "../words/precision.js" */

const COMPARED_HOW = "the request, run once more with keys and values in fp32";
const ROUNDING_HOW = "fp32's own, rounded to the dtype";
const EXPLAINED =
  "Its tokens run once more through the same model, with keys and values in fp32 and no pages, " +
  "and what the pool really holds is compared with that. The engine stands still meanwhile; " +
  "nothing in it changes.";

export class PrecisionView {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.busy = false;
    this.sentence = el("p", { class: "gbp-beside-words" });
    this.button = el("button", {
      type: "button",
      class: "gb-button",
      onclick: () => void this.compare(),
    });
    this.note = el("p", { class: "gbp-more", role: "status" });
    this.text = el("div", { class: "gbp-fp32-text" });
    this.errors = el("div");
    this.rooms = el("tbody");
    const head = ["dtype", "a token", "tokens in all"].map((text) =>
      el("th", { scope: "col", text }),
    );
    const rooms = section(
      "The same memory in each dtype",
      "rooms",
      el(
        "table",
        { class: "gbp-graphs" },
        el("thead", {}, el("tr", {}, ...head, el("td"))),
        this.rooms,
      ),
    );
    const compared = section(
      "This request",
      "compared",
      el("div", { class: "gbp-fp32-acts" }, this.button, this.note),
      this.text,
      this.errors,
    );
    this.element = el("div", { class: "gbp-fp32", hidden: true }, compared, rooms);
  }

  async compare() {
    const request = shownRequest(this.store);
    if (!request) return;
    this.busy = true;
    this.store.following = true; // what it finds is at the head
    this.store.changed();
    await this.store.command("compare_kv", { request });
    this.busy = false;
    this.store.changed();
  }

  update() {
    const { store } = this;
    const model = store.header?.model ?? {};
    const request = shownRequest(store);
    const event = lastAside(store, "kv_cache_compared", ({ facts }) => facts.request === request);
    const rooms = roomByDtype(model, store.header?.config ?? {});
    const words = precisionWords(model, rooms, request, event);
    remake(this.sentence, words, () =>
      words.map(({ text, how }) => (how ? truth(event ? "measured" : "derived", how, text) : text)),
    );
    this.updateButton(request, event);
    remake(this.text, [event], () => (event?.facts.num_outputs ? textParts(event.facts) : []));
    remake(this.errors, [event], () => (event?.facts.num_tokens ? errorParts(event.facts) : []));
    this.updateRooms(rooms, model.kv_cache_dtype);
  }

  /** @param {string|null} request @param {EventRecord|null} event */
  updateButton(request, event) {
    const { store } = this;
    const why = request ? store.whyNoCommand : nobodyAsked(store);
    setText(this.button, this.busy ? "Comparing …" : `Compare ${request ?? ""} with fp32`);
    setAttribute(this.button, "disabled", why || this.busy ? "" : null);
    this.button.title = why;
    if (!event) {
      setText(this.note, request ? EXPLAINED : why);
      return;
    }
    const took = event.duration_us === undefined ? "" : `, in ${micros(event.duration_us)}`;
    const since = wentOnSince(store, event) ? " The engine has gone on since." : "";
    setText(this.note, `Compared in step ${event.step}${took}.${since}`);
  }

  /** @param {Room[]} rooms @param {string} own */
  updateRooms(rooms, own) {
    const most = Math.max(1, ...rooms.map((room) => room.tokens));
    reconcile(
      this.rooms,
      rooms,
      (room) => room.dtype,
      (room) =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }, room.dtype, el("small", {})),
          el("td"),
          el("td"),
          el("td", { class: "gbp-room" }, el("i", { "aria-hidden": "true" })),
        ),
      (row, room) => {
        const [name, token, tokens, bar] = row.children;
        row.classList.toggle("is-taken", room.dtype === own);
        setText(name.lastElementChild, room.dtype === own ? "now" : "");
        setTruth(token, "derived", room.how, bytes(room.bytes));
        setTruth(tokens, "derived", room.tokensHow, count(room.tokens));
        bar.firstElementChild.style.width = `${(100 * room.tokens) / most}%`;
      },
    );
  }
}

/** Both texts, one below the other, with what differs marked. @param {any} f */
function textParts(f) {
  const first = f.differs_at < 0 ? Infinity : f.differs_at - f.shown_from;
  const line = (/** @type {string} */ name, /** @type {string[]} */ pieces) => {
    const same = pieces.slice(0, first).join("");
    const rest = pieces.slice(first).join("");
    return [
      el("dt", { text: name }),
      el(
        "dd",
        { class: "gb-truth", "data-truth": "measured", title: `measured: ${COMPARED_HOW}` },
        f.shown_from ? "… " : "",
        el("span", { text: same }),
        rest ? el("mark", { text: rest }) : null,
      ),
    ];
  };
  return [
    el("h3", { class: "gbp-title", text: "Its text" }),
    el("dl", {}, ...line(f.dtype, f.written), ...line("in fp32", f.in_fp32)),
  ];
}

/** How far off keys and values are: a table, and a pair of bars a layer. @param {any} f */
function errorParts(f) {
  return [
    el("h3", { class: "gbp-title", text: "How far off its keys and values are" }),
    errorTable(f),
    layerBars(f),
    legend([
      ["is-key", "keys"],
      ["is-value", "values"],
      ["is-rounding", "solid: by rounding alone; pale: with what the layers before add"],
    ]),
  ];
}

/** @param {any} f */
function errorTable(f) {
  const rows = [
    ["keys", f.key_errors, f.key_rounding],
    ["values", f.value_errors, f.value_rounding],
  ].map(([name, errors, rounding]) => {
    const worst = Math.max(...errors);
    const layers = plural(errors.length, "layer");
    const cell = (/** @type {string} */ how, /** @type {string} */ text) =>
      el("td", {}, truth("measured", how, text));
    return el(
      "tr",
      {},
      el("th", { scope: "row", text: name }),
      cell(errorHow(`mean over ${layers}`), errorText(mean(errors))),
      cell(errorHow(`${ROUNDING_HOW}; mean over ${layers}`), errorText(mean(rounding))),
      cell(errorHow("the largest"), `${errorText(worst)}, layer ${errors.indexOf(worst)}`),
    );
  });
  const head = ["", "off by", "rounding alone", "most"].map((text) =>
    text ? el("th", { scope: "col", text }) : el("td"),
  );
  return el(
    "table",
    { class: "gbp-graphs" },
    el("thead", {}, el("tr", {}, ...head)),
    el("tbody", {}, ...rows),
  );
}

/** @param {any} f */
function layerBars(f) {
  const most = Math.max(...f.key_errors, ...f.value_errors, 1e-9);
  const bar = (
    /** @type {string} */ kind,
    /** @type {number} */ error,
    /** @type {number} */ part,
  ) => {
    const rounding = el("b");
    rounding.style.height = `${100 * Math.min(1, part / Math.max(error, 1e-12))}%`;
    const whole = el("i", { class: `is-${kind}` }, rounding);
    whole.style.height = `${(100 * error) / most}%`;
    return whole;
  };
  const layers = f.key_errors.map((/** @type {number} */ error, /** @type {number} */ i) => {
    const told =
      `layer ${i}: keys ${errorText(error)}, by rounding alone ${errorText(f.key_rounding[i])}; ` +
      `values ${errorText(f.value_errors[i])}, by rounding alone ${errorText(f.value_rounding[i])}`;
    return el(
      "li",
      { class: "gb-truth", "data-truth": "measured", title: `measured: ${told}` },
      el("span", { class: "gb-sr", text: told }),
      bar("key", error, f.key_rounding[i]),
      bar("value", f.value_errors[i], f.value_rounding[i]),
    );
  });
  return el(
    "div",
    { class: "gbp-layers" },
    el("span", { text: errorText(most), "aria-hidden": "true" }),
    el("ol", { "aria-label": "By layer" }, ...layers),
    el("span", { text: "layer 0", "aria-hidden": "true" }),
    el("span", { text: `layer ${f.key_errors.length - 1}`, "aria-hidden": "true" }),
  );
}
