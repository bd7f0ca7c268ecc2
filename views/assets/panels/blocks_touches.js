// @ts-check
/** What a step did to blocks: a mark for each kind, and how many it was done to. */
import { el, reconcile } from "../page/dom.js";
import { setTruth } from "../page/truth.js";
import { plural, ranges } from "../words/format.js";
import { OUTLINES, RARE } from "./blocks_words.js";

export class Touches {
  constructor() {
    this.element = el("ul", { class: "gbp-touches" });
  }

  /** @param {Record<string, number[]>} touched blocks by what was done, a key of `TOUCH` */
  update(touched) {
    reconcile(
      this.element,
      OUTLINES.filter(([, name]) => !RARE.has(name) || touched[name].length),
      ([, name]) => name,
      ([, name]) =>
        el(
          "li",
          {},
          el("i", { class: `gbp-mark is-${name}`, "aria-hidden": "true" }),
          el("b", { class: "gbp-num" }),
          ` ${name}`,
        ),
      (node, [, name]) => {
        const blocks = touched[name];
        const which = blocks.length ? `: ${ranges(blocks, 12)}` : "";
        const how = `${plural(blocks.length, "block")} named by this step's events${which}`;
        setTruth(node.children[1], "measured", how, String(blocks.length));
        node.classList.toggle("is-none", blocks.length === 0);
      },
    );
  }
}
