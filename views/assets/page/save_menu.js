// @ts-check
/** Save: the log as a trace file, for Perfetto, or as tables. */
import { shownTrace, withBookmarks } from "../core/trace_text.js";
import { messageOf } from "../words/format.js";
import { MOMENT } from "../words/moment.js";
import { SAVE } from "../words/reach.js";
import { el, icon, setAttribute } from "./dom.js";
import { Popover } from "./popover.js";
import { saveFile } from "./save_file.js";

/** @import { Store } from "../core/store.js" */
/** @import { EngineLink, LogFormat } from "../core/stream.js" */
/** @import { MomentTools } from "./moment.js" */

const ICON = "M7 2h2v6h2.5L8 11.5 4.5 8H7zM2 12h12v2H2z";
/** @type {Record<LogFormat, string>} how the file's name ends */
const SUFFIXES = { jsonl: ".jsonl", perfetto: ".perfetto-trace", csv: ".csv.zip" };

export class SaveMenu {
  /** @param {Store} store @param {MomentTools} moment */
  constructor(store, moment) {
    this.store = store;
    this.moment = moment;
    this.busy = false;
    this.button = el(
      "button",
      {
        class: "gb-button is-quiet",
        type: "button",
        title: SAVE.title,
        "data-act": "save",
      },
      icon(ICON),
      el("span", { text: "Save" }),
    );
    this.choices = /** @type {LogFormat[]} */ (Object.keys(SUFFIXES)).map((form) =>
      this.choice(form),
    );
    this.engine = choiceButton("engine", MOMENT, () => this.saveEngine());
    const panel = el(
      "div",
      { class: "gb-popover gb-save", role: "dialog", "aria-label": SAVE.title },
      ...this.choices,
      this.engine,
    );
    this.element = el("div", { class: "gb-tool-corner" }, this.button, panel);
    this.popover = new Popover(this.element, this.button, panel, (open) => {
      if (open) this.choices[0].focus();
    });
  }

  destroy() {
    this.popover.destroy();
  }

  /** @param {LogFormat} form */
  choice(form) {
    return choiceButton(form, SAVE.forms[form], () => void this.save(form));
  }

  /** Once something is chosen. */
  close() {
    this.popover.open(false);
    this.button.focus();
  }

  update() {
    const able = this.store.header && !this.busy;
    setAttribute(this.button, "disabled", able ? null : "");
    setAttribute(this.engine, "disabled", this.moment.whyNot ? "" : null);
    setAttribute(this.engine, "title", this.moment.whyNot || null);
  }

  saveEngine() {
    this.close();
    void this.moment.save();
  }

  /** @param {LogFormat} form */
  async save(form) {
    const { store } = this;
    this.close();
    this.busy = true;
    const name = fileName(store.header?.trace_id) + SUFFIXES[form];
    try {
      saveFile(await this.file(form), name);
    } catch (error) {
      store.tell("error", SAVE.failed(messageOf(error)));
    }
    this.busy = false;
    store.changed();
  }

  /** @param {LogFormat} form @returns {Promise<Blob>} */
  async file(form) {
    const { store } = this;
    const link = /** @type {EngineLink} */ (store.link);
    if (!store.live) {
      const trace = shownTrace(store);
      return form === "jsonl" ? trace : link.exported(trace, form);
    }
    const file = await link.traceFile(form);
    return form === "jsonl" ? withBookmarks(file, store.bookmarks.list) : file;
  }
}

/** @param {string} name @param {{label: string, about: string}} words @param {() => void} act */
function choiceButton(name, { label, about }, act) {
  return el(
    "button",
    { class: "gb-choice", type: "button", "data-save": name, onclick: act },
    el("b", { text: label }),
    el("span", { text: about }),
  );
}

/** A log's id may be a stranger's. @param {string} [log] */
function fileName(log) {
  return `glassbox-${(log ?? "").replace(/[^A-Za-z0-9_-]/g, "").slice(0, 40) || "trace"}`;
}
