// @ts-check
/** How the step's batch was dispatched, and why. */
import { el } from "../page/dom.js";
import { truth } from "../page/truth.js";
import { capital, count, micros, plural } from "../words/format.js";

/** @import { Model } from "./graph_model.js" */

const EAGER = "Eager: the model's code calls each operation, one after the other.";
const GRAPH =
  "A graph is here a list of operations, recorded in one forward and run again without the " +
  "decoder's modules. On a GPU one launch starts all of its kernels.";

/** @typedef {Pick<Model, "dispatch" | "replay" | "captured" | "nothingRan" | "none">} View */

/** @param {View} data @returns {HTMLElement[]} */
export function dispatchParts(data) {
  const { dispatch } = data;
  if (!dispatch) {
    const name = data.nothingRan ? "nothing ran" : "not dispatched";
    const text = data.nothingRan
      ? "This step gave no tokens: there was no batch to run."
      : data.none;
    return [
      el("p", { class: "gbp-mode is-none", text: name }),
      el("p", { class: "gbp-more", text }),
    ];
  }
  const parts = [
    el(
      "p",
      { class: `gbp-mode ${dispatch.eager ? "" : "is-graph"}` },
      truth("measured", "step_dispatched", dispatch.eager ? "eager" : "graph replay"),
      el("code", { text: dispatch.mode }),
    ),
    el("p", { class: "gbp-because" }, whyWords(dispatch.why)),
    batchWords(dispatch),
    ...graphWords(data),
    el("p", { class: "gbp-more", text: dispatch.eager ? EAGER : GRAPH }),
  ];
  return parts;
}

/** What was asked for, what was taken, and what came of it. @param {View} data */
function graphWords({ dispatch, replay, captured }) {
  if (!dispatch || dispatch.eager) return [];
  const { mode, tokens, padding } = dispatch;
  const words = [
    truth("measured", "step_dispatched", `${plural(tokens, "row")} asked for`),
    ", ",
    truth("measured", "step_dispatched", `the ${mode} graph of ${tokens + padding} taken`),
    padding === 0
      ? "."
      : mode === "FULL"
        ? ": what fills it up writes to block 0, and nobody reads its result."
        : ": attention runs without what fills it up, and nobody reads that.",
  ];
  const parts = [el("p", { class: "gbp-more" }, ...words)];
  if (captured) parts.push(el("p", { class: "gbp-more" }, capturedWords(captured), "."));
  if (replay) {
    const operations = plural(replay.operations, "operation");
    const time = replay.us === undefined ? "" : ` in ${micros(replay.us)}`;
    const pieces = replay.pieces > 1 ? ` in ${plural(replay.pieces, "piece")}` : "";
    const what = truth("measured", "graph_replayed", `${operations}${pieces}${time}`);
    parts.push(el("p", { class: "gbp-more" }, "Replayed: ", what, "."));
  }
  return parts;
}

/** @param {NonNullable<Model["captured"]>} captured */
function capturedWords({ mode, size, shared, us }) {
  const time = us === undefined ? "" : ` in ${micros(us)}`;
  const text = shared
    ? `The ${mode} graph of ${size} was there already: engines of one model share them`
    : `The ${mode} graph of ${size} was captured in this step${time}`;
  return truth("measured", "graph_captured", text);
}

/** @param {string} why */
function whyWords(why) {
  if (!why) return "";
  return truth("measured", "the reason in step_dispatched", `${capital(why)}.`);
}

/** @param {NonNullable<Model["dispatch"]>} dispatch */
function batchWords({ prefill, decode, requests, padding }) {
  const tokens = `${count(prefill)} prefill + ${plural(decode, "decode token")}`;
  const rows = padding > 0 ? `${plural(padding, "row")} of padding` : "no padding";
  return el(
    "p",
    { class: "gbp-more" },
    truth("measured", "batch_scheduled", `${tokens} of ${plural(requests, "request")}`),
    ", ",
    truth("derived", "num_padded_tokens − num_tokens", rows),
  );
}
