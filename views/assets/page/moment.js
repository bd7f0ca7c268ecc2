// @ts-check
/** A live engine as a file: saved, gone on from, and come back to by one key. */
import { messageOf } from "../words/format.js";
import { MOMENT } from "../words/moment.js";
import { el, icon, setAttribute } from "./dom.js";
import { saveFile } from "./save_file.js";

/** @import { Store } from "../core/store.js" */
/** @import { EngineLink } from "../core/stream.js" */
/** @typedef {{key: string, kind: string, text: string, act?: [string, () => void]}} Banner */

const ICON = "M3 3h2v10H3zM13 3v10L6 8z";
/** Behind memory_sized at the beginning of a log. */
const RESTORED_WITHIN = 6;

/** @param {string} file */
export function isMoment(file) {
  return file.toLowerCase().endsWith(".safetensors");
}

export class MomentTools {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.busy = false;
    /** What was under way when the engine was to be saved. */
    this.asks = "";
    this.back = el(
      "button",
      {
        class: "gb-button is-quiet",
        type: "button",
        "data-act": "restore",
        "aria-label": MOMENT.back,
        onclick: () => void this.goBack(),
      },
      icon(ICON),
    );
  }

  get link() {
    return /** @type {EngineLink} */ (this.store.link);
  }

  /** Why the engine cannot be saved from here, or "". */
  get whyNot() {
    return this.store.whyNoCommand || (this.store.header ? "" : MOMENT.noEngine);
  }

  /**
   * One at a time; what goes wrong is said.
   * @param {() => Promise<void>} act @param {(why: string) => void} failed
   */
  async once(act, failed) {
    if (this.busy) return;
    this.busy = true;
    try {
      await act();
    } catch (error) {
      failed(messageOf(error));
    }
    this.busy = false;
    this.store.changed();
  }

  /** What is under way: an engine is saved between two steps. "": nothing. */
  get underWay() {
    const { store } = this;
    const { mode, next_phase: next, step } = store.headEngine;
    if (mode === "running") return MOMENT.runs;
    const between = next === "arrive" && !Object.keys(store.headEngine.in_flight ?? {}).length;
    return between ? "" : MOMENT.midStep(step, next);
  }

  /** @param {boolean} [finishFirst] */
  save(finishFirst = false) {
    const { store } = this;
    this.asks = finishFirst ? "" : this.underWay;
    store.changed();
    if (this.asks) return Promise.resolve();
    const run = async () => {
      if (finishFirst) await this.link.command("finish", {});
      const { file, name } = await this.link.momentFile();
      saveFile(file, name);
      if (store.moment) store.tell("info", MOMENT.saved(store.moment));
    };
    return this.once(run, (why) => store.tell("error", MOMENT.failed(why)));
  }

  /** @param {File} file @param {(problem: string) => void} refused */
  restore(file, refused) {
    const { store } = this;
    if (store.engine === "shared") this.link.choose("own");
    else if (!store.live) store.backToLive();
    return this.once(
      () => this.link.restore(file),
      (why) => refused(MOMENT.refused(file.name, why)),
    );
  }

  goBack() {
    const { store } = this;
    if (!store.moment) {
      store.tell("info", MOMENT.none);
      return Promise.resolve();
    }
    return this.once(
      () => this.link.restore(null),
      (why) => store.tell("error", why),
    );
  }

  /** @param {string} key @returns {boolean} */
  key(key) {
    if (key !== "r") return false;
    if (this.whyNot) this.store.tell("error", this.whyNot);
    else void this.goBack();
    return true;
  }

  update() {
    const { moment } = this.store;
    const why = this.whyNot || (moment ? "" : MOMENT.none);
    setAttribute(this.back, "disabled", why || this.busy ? "" : null);
    setAttribute(this.back, "title", moment && !why ? MOMENT.backTitle(moment) : why);
  }

  /** @returns {Banner[]} */
  banners() {
    const { store } = this;
    /** @type {Banner[]} */
    const banners = [];
    // Once it has gone on by itself there is nothing to ask any more.
    if (this.asks && this.asks === this.underWay && !this.whyNot) {
      const act = /** @type {[string, () => void]} */ ([
        MOMENT.finish,
        () => void this.save(true),
      ]);
      banners.push({ key: "under-way", kind: "warn", text: this.asks, act });
    }
    const restored = restoredEvent(store);
    if (restored && store.steps.every((entry) => entry.command)) {
      const text = MOMENT.restored(restored.facts, restored.step);
      banners.push({ key: "restored", kind: "warn", text });
    }
    return banners;
  }
}

/** @param {Store} store */
function restoredEvent(store) {
  for (let i = 0; i < RESTORED_WITHIN && i < store.records.length; i += 1) {
    const record = store.records[i];
    if (record.kind === "event" && record.type === "moment_restored") return record;
  }
  return null;
}
