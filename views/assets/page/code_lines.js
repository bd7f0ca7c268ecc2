// @ts-check
/**
 * Lines of the engine's source: those that made an event marked, and the event's numbers behind the
 * names that had them. A line is text nodes, whatever it holds.
 */
import { WAITS, valueHow, valueText } from "../words/code.js";
import { el, setAttribute } from "./dom.js";
import { truth } from "./truth.js";

/** @import { EventRecord } from "../core/records.js" */
/** @import { Site, SiteValue } from "../core/sites.js" */
/** @import { Store } from "../core/store.js" */

/**
 * A file, and of each line which characters have which colour: from, up to, kind.
 * @typedef {{path: string, lines: string[], spans: [number, number, string][][]}} SourceFile
 */

export class CodeLines {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.element = el("pre", { class: "gb-code-lines", tabindex: "0", role: "region" });
    /** What is drawn: the file, from which line on, and whether it is all of it. */
    this.drawn = "";
    /** What is drawn, as it stands in the file. */
    this.text = "";
    /** For which event, and which line of it. */
    this.at = "";
    /** @type {Map<number, HTMLElement>} by their number in the file */
    this.lines = new Map();
    /** @type {number[]} lines that hold values or are marked */
    this.touched = [];
  }

  /**
   * @param {SourceFile|null} file null: it is on its way
   * @param {Site} site the one to look at @param {Site[]} sites of the event in that function
   * @param {EventRecord} event @param {boolean} whole the file, not the function alone
   */
  draw(file, site, sites, event, whole) {
    const [first, last] = whole ? [1, file?.lines.length ?? 1] : [site.first, site.last];
    const key = `${site.path} ${first} ${whole}`;
    if (!file) {
      if (!this.drawn.startsWith(`${site.path} `)) this.element.replaceChildren(WAITS);
      return;
    }
    const at = [key, site.line, event.seq, this.store.header?.trace_id].join(" ");
    if (at === this.at) return;
    this.at = at;
    const indent = whole ? 0 : indentOf(file.lines[first - 1]);
    if (key !== this.drawn) this.drawAll(file, first, last, indent, key);
    const values = sites.flatMap((each) => each.values);
    const marked = (/** @type {number} */ n) => sites.some((s) => s.line <= n && n <= s.end_line);
    const now = [];
    for (let n = first; n <= last; n += 1)
      if (marked(n) || values.some((value) => value.line === n)) now.push(n);
    for (const n of new Set([...this.touched, ...now])) {
      const line = this.lines.get(n);
      if (!line) continue;
      setAttribute(line, "data-mark", marked(n) ? "true" : null);
      this.fill(line, file, n, indent, valuesOn(n, values), event);
    }
    this.touched = now;
    this.bringIntoSight(this.lines.get(site.line), this.lines.get(site.end_line));
  }

  /**
   * @param {SourceFile} file @param {number} first @param {number} last @param {number} indent
   * @param {string} key
   */
  drawAll(file, first, last, indent, key) {
    this.drawn = key;
    this.touched = [];
    this.lines = new Map();
    this.text = `${file.lines.slice(first - 1, last).join("\n")}\n`;
    for (let n = first; n <= last; n += 1) {
      const line = el("span", { class: "gb-code-line", "data-line": n });
      this.fill(line, file, n, indent, [], null);
      this.lines.set(n, line);
    }
    this.element.replaceChildren(...this.lines.values());
    this.element.scrollTop = this.element.scrollLeft = 0;
  }

  /**
   * A line: its words in their colours, and behind some of them a value.
   * @param {HTMLElement} line @param {SourceFile} file @param {number} n @param {number} indent
   * @param {SiteValue[]} values in order @param {EventRecord|null} event
   */
  fill(line, file, n, indent, values, event) {
    const text = file.lines[n - 1];
    /** @type {(Node|string)[]} */
    const parts = [];
    let at = Math.min(indent, indentOf(text));
    const say = (/** @type {number} */ upto) => {
      for (const [first, last, kind] of file.spans[n - 1]) {
        if (last <= at || first >= upto) continue;
        if (first > at) parts.push(text.slice(at, first));
        const end = Math.min(last, upto);
        parts.push(el("span", { "data-kind": kind, text: text.slice(Math.max(first, at), end) }));
        at = end;
      }
      if (at < upto) parts.push(text.slice(at, upto));
      at = Math.max(at, upto);
    };
    for (const value of values) {
      say(value.column);
      const pill = event && this.pill(value, event);
      if (pill) parts.push(pill);
    }
    say(text.length);
    line.replaceChildren(...parts, "\n");
  }

  /** @param {SiteValue} value @param {EventRecord} event */
  pill({ of, name, whole }, event) {
    const from =
      of === "config" ? this.store.header?.config : of === "reason" ? event.reason : event.facts;
    if (!from || !Object.hasOwn(from, name)) return null;
    const text = `${whole ? `${name} ` : ""}${valueText(from[name])}`;
    const pill = truth("measured", valueHow(of, name, event.seq), text);
    pill.classList.add("gb-code-value");
    return pill;
  }

  /**
   * Within the code alone: the page stays where it is.
   * @param {HTMLElement|undefined} line @param {HTMLElement|undefined} end
   */
  bringIntoSight(line, end) {
    if (!line || !end) return;
    const { scrollTop, clientHeight } = this.element;
    const top = line.offsetTop - this.element.offsetTop;
    const bottom = end.offsetTop - this.element.offsetTop + end.offsetHeight;
    if (top >= scrollTop && bottom <= scrollTop + clientHeight) return;
    this.element.scrollTop = Math.max(0, Math.min(top - 24, bottom - clientHeight / 2));
  }
}

/** @param {number} line @param {SiteValue[]} values */
function valuesOn(line, values) {
  const here = new Map();
  for (const value of values) {
    const place = `${value.column} ${value.whole}`;
    // Where two sites know a name, what the event says of it goes before what the settings say.
    if (value.line === line && (!here.has(place) || value.of !== "config")) here.set(place, value);
  }
  const order = (/** @type {SiteValue} */ value) => 2 * value.column + Number(value.whole);
  return [...here.values()].sort((a, b) => order(a) - order(b));
}

/** @param {string} text */
function indentOf(text) {
  return text.length - text.trimStart().length;
}
