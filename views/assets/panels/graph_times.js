// @ts-check
/** Where the forward's time went: by kind of module, and by phase. */
import { el } from "../page/dom.js";
import { truth } from "../page/truth.js";
import { micros, percent, plural } from "../words/format.js";
import { GRAPH } from "../words/graph.js";

/** @import { Model, ModuleTime } from "./graph_model.js" */

/**
 * Matrix products share a hue, since they decide about the time.
 * A Map, since of a saved trace the kind may be any word.
 * @type {Map<string, [string, number]>}
 */
const KIND_COLOURS = new Map([
  ["mlp", ["--gb-backend", 100]],
  ["qkv_proj", ["--gb-backend", 78]],
  ["o_proj", ["--gb-backend", 58]],
  ["lm_head", ["--gb-backend", 42]],
  ["attention", ["--gb-cloud", 100]],
  ["norm", ["--gb-database", 80]],
  ["embed", ["--gb-database", 50]],
  ["other", ["--gb-muted", 60]],
]);

/** @param {string} kind */
function kindColour(kind) {
  const [name, share] = KIND_COLOURS.get(kind) ?? ["--gb-muted", 80];
  return `color-mix(in srgb, var(${name}) ${share}%, var(--gb-panel))`;
}

/** The mark of a kind of module. @param {string} kind */
export function kindMark(kind) {
  const mark = el("i", { class: "gbp-mark", "aria-hidden": "true" });
  mark.style.background = kindColour(kind);
  return mark;
}

/** @typedef {"modules" | "forward" | "replay" | "phases" | "nothingRan" | "device"} Read */

/** @param {Pick<Model, Read>} data @returns {HTMLElement[]} */
export function timesParts(data) {
  const { device } = data;
  const where = `measured on ${device === "cpu" || device === "" ? "the CPU" : device}`;
  const phases = data.phases.filter((item) => item.us !== null);
  return [...forwardParts(data, where), ...(phases.length ? [phaseTimes(phases, where)] : [])];
}

/** @param {Pick<Model, Read>} data @param {string} where */
function forwardParts({ modules, forward, nothingRan, replay }, where) {
  const rows = modules.filter((item) => item.us > 0);
  if (forward?.us === undefined || !rows.length) {
    const text = nothingRan
      ? GRAPH.noForward
      : GRAPH.noForwardYet;
    return [el("p", { class: "gbp-more", text })];
  }
  const sum = modules.reduce((all, item) => all + item.us, 0);
  const noun = replay ? "recorded call" : "call";
  const size = `${plural(forward.tokens, "token")} through ${plural(forward.layers, "layer")}`;
  return [
    el(
      "p",
      { class: "gbp-total" },
      truth("measured", `forward_run, ${where}`, micros(forward.us)),
      el("small", {}, ` ${where}: `, truth("measured", "forward_run", size)),
    ),
    el(
      "div",
      { class: "gbp-stack", role: "presentation" },
      ...rows.map((item) => segment(item, sum)),
    ),
    el("ul", { class: "gbp-kinds" }, ...rows.map((item) => kindItem(item, sum, where, noun))),
  ];
}

/** @param {Model["phases"]} phases @param {string} where */
function phaseTimes(phases, where) {
  const how = `the phase's own clock, its log included, ${where}`;
  const items = phases.map((item) =>
    el("span", {}, `${item.phase} `, truth("measured", how, micros(Number(item.us)))),
  );
  return el("p", { class: "gbp-phases" }, el("span", { text: "by phase " }), ...items);
}

/** @param {ModuleTime} item @param {number} sum */
function segment(item, sum) {
  const part = el("i", { title: `measured: ${item.kind} ${micros(item.us)}` });
  part.style.flexGrow = String(item.us / sum);
  part.style.background = kindColour(item.kind);
  return part;
}

/**
 * @param {ModuleTime} item @param {number} sum
 * @param {string} where @param {string} noun a replay runs what was recorded of modules' calls
 */
function kindItem(item, sum, where, noun) {
  const calls = item.calls ? plural(item.calls, noun) : "";
  return el(
    "li",
    {},
    kindMark(item.kind),
    el("span", { text: item.kind }),
    truth("measured", `modules_timed, ${where}`, micros(item.us)),
    el(
      "small",
      {},
      truth("derived", `${item.kind} / sum of all kinds`, percent(item.us / sum)),
      ...(calls ? [" · ", truth("measured", "modules_timed", calls)] : []),
    ),
  );
}
