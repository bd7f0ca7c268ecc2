// @ts-check
/**
 * What the page has to say beside what it shows: whose log this is, what failed, what can be done.
 * A banner covers nothing: it has a line of its own above the tabs, and the shell takes the line of
 * its hint away meanwhile. It can be closed, and comes again when it has something else to say.
 */
import { BANNERS, failureText, savedText } from "../words/banners.js";
import { DOCUMENT, refusedText } from "../words/document.js";
import { el, reconcile, setText } from "./dom.js";

/** @import { Store } from "../core/store.js" */
/** @import { Address } from "./address.js" */
/** @import { Head } from "./head.js" */

/**
 * @typedef {{key: string, kind: string, text: string, act?: [string, () => void],
 *   more?: [string, () => void]}} Banner
 */

export class Banners {
  /**
   * @param {HTMLElement} root
   * @param {Store} store
   * @param {Address} address
   * @param {Head} head
   * @param {Map<string, string>} faults by part of the page, what it could not draw
   */
  constructor(root, store, address, head, faults) {
    this.root = root;
    this.store = store;
    this.address = address;
    this.head = head;
    this.faults = faults;
    /** @type {Set<string>} those that were closed, as long as they say the same */
    this.closed = new Set();
    /** The refusal of a document that was read, and closed. */
    this.leftAside = "";
  }

  update() {
    const { store, address } = this;
    /** @type {Banner[]} */
    const banners = [];
    if (this.head.problem)
      banners.push({
        key: "problem",
        kind: "bad",
        text: this.head.problem,
        act: this.head.instead ?? [BANNERS.close, () => this.closeProblem()],
      });
    banners.push(...this.ofDocument());
    if (store.forgotten)
      banners.push({
        key: "forgotten",
        kind: "warn",
        text: store.forgotten === "director" ? BANNERS.directsNoMore : BANNERS.forgotten,
        act: [BANNERS.close, () => this.closeForgotten()],
      });
    const { notice, awaited } = address;
    /** @type {[string, () => void]} */
    const dismiss = [BANNERS.close, () => address.dismiss()];
    if (notice) banners.push({ key: "link", kind: "warn", text: notice, act: dismiss });
    if (awaited) {
      /** @type {[string, () => void]} */
      const open = [BANNERS.open, () => this.head.file.click()];
      banners.push({ key: "awaited", kind: "warn", text: awaited, act: open, more: dismiss });
    }
    if (!store.live) {
      banners.push({
        key: "saved",
        kind: "warn",
        text: savedText(
          store.traceName,
          store.header?.document,
          store.document.meta?.title,
          Boolean(store.header?.fault),
        ),
        act: [BANNERS.backToLive, () => store.backToLive()],
      });
    }
    if (store.failure && store.cursor >= store.failure.index) {
      const act = /** @type {[string, () => void]} */ ([
        BANNERS.reset,
        () => void store.command("reset", { config: null }),
      ]);
      banners.push({
        key: "failed",
        kind: "bad",
        text: failureText(store.failure.message),
        act: store.canCommand ? act : undefined,
      });
    }
    banners.push(...this.head.moment.banners());
    for (const [name, message] of this.faults) {
      banners.push({
        key: `fault ${name}`,
        kind: "bad",
        text: BANNERS.fault(name, message),
      });
    }
    const said = banners.map((banner) => `${banner.key} ${banner.text}`);
    for (const each of this.closed) if (!said.includes(each)) this.closed.delete(each);
    reconcile(
      this.root,
      banners.filter((_, i) => !this.closed.has(said[i])),
      (banner) => `${banner.key} ${banner.act?.[0] ?? ""}`,
      (banner) => makeBanner(banner, () => this.close(banner)),
      (node, banner) => setText(node.firstElementChild, banner.text),
    );
    const page = this.root.getRootNode();
    const says = this.root.childElementCount > 0;
    if (page instanceof ShadowRoot) page.host.toggleAttribute("data-gb-says", says);
  }

  closeForgotten() {
    this.store.forgotten = "";
    this.store.changed();
  }

  /** What is wrong with a document that is not drawn. @returns {Banner[]} */
  ofDocument() {
    const { store } = this;
    const { refused } = store;
    const whole = JSON.stringify(refused);
    if (!refused || whole === this.leftAside) return [];
    const close = () => {
      this.leftAside = whole;
      store.changed();
    };
    const { text, box } = refusedText(refused);
    const select = () => store.select({ component: box, request: null, block: null });
    const act = /** @type {[string, () => void]} */ ([BANNERS.close, close]);
    const show = /** @type {[string, () => void]} */ ([DOCUMENT.show, select]);
    return [{ key: `document ${box}`, kind: "bad", text, act, more: box ? show : undefined }];
  }

  /** @param {Banner} banner */
  close({ key, text }) {
    this.closed.add(`${key} ${text}`);
    this.store.changed();
  }

  closeProblem() {
    this.head.problem = "";
    this.store.changed();
  }
}

/** @param {Banner} banner @param {() => void} close */
function makeBanner(banner, close) {
  const closes = [banner.act, banner.more].some((act) => act?.[0] === BANNERS.close);
  const buttons = [banner.act, banner.more].map(
    (act) =>
      act && el("button", { class: "gb-button", type: "button", text: act[0], onclick: act[1] }),
  );
  return el(
    "div",
    { class: "gb-banner", "data-kind": banner.kind, role: "status" },
    el("p"),
    ...buttons,
    closes
      ? null
      : el("button", {
          class: "gb-banner-close",
          type: "button",
          "aria-label": BANNERS.closeTitle,
          title: BANNERS.closeTitle,
          text: "×",
          onclick: close,
        }),
  );
}
