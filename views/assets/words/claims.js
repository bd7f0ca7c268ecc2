// @ts-check
/** Claims about vLLM in words: verdicts, marks, and what this engine's log says of them. */
import {
  contiguousWays,
  heldBlocks,
  latestOf,
  sharedBlocks,
  sumOf,
} from "../core/claim_figures.js";
import { bytes, count, micros, percent, plural } from "./format.js";
import { WAYS } from "./ways.js";

/** @import { LiveRow } from "../boxes/live.js" */
/** @import { ClaimMark } from "../core/document.js" */
/** @import { Store } from "../core/store.js" */

export const CLAIMS_TITLE = "What is often said of vLLM, and what holds";
export const CLAIMS = {
  name: "Claims",
  search: "Search the claims",
  all: "Show all claims",
  map: "the map",
  unknown: "There is no claim of that number. All of them are listed once this choice is ended.",
  /** @param {number[]} numbers */
  linked: (numbers) => (numbers.length === 1 ? `claim ${numbers[0]}` : `${numbers.length} claims`),
  /** @param {string} about */
  of: (about) => `Of ${about} alone ×`,
};
export const CLAIMS_LEAD =
  "Things that are often said of vLLM, checked against 0.26.0. The figures are this engine's, at " +
  "the cursor.";
export const NO_CLAIM = "No claim has these words.";
export const LOADING = "Reading the claims …";

/** @type {Record<string, string>} which of the page's colours a verdict has */
export const VERDICT_TONES = { true: "ok", imprecise: "warn", outdated: "warn", wrong: "security" };

/** @param {ClaimMark} mark */
export function markName({ claim, verdict, said }) {
  return `Claim ${claim}, ${verdict}${said ? ": said here" : ""}`;
}

/** @param {ClaimMark} mark */
export function markTitle(mark) {
  const where = mark.said ? "The document says so here." : "Often said of this.";
  return `${markName(mark)}\n${mark.text}\n${where} Click for what holds.`;
}

/** @param {string} label of a box @param {ClaimMark[]} marks */
export function flagTitle(label, marks) {
  return [`Claims about ${label}:`, ...marks.map((mark) => `${markName(mark)}: ${mark.text}`)].join(
    "\n",
  );
}

/** @param {string} label of a box @param {number} number of claims */
export function flagName(label, number) {
  return `${plural(number, "claim")} about ${label}`;
}

/** @typedef {(store: Store) => LiveRow[]} Figures */

/** @param {string} name @param {string} value @param {string} how @returns {LiveRow} */
const measured = (name, value, how) => ({ name, value, how, truth: "measured" });
/** @param {string} name @param {string} value @param {string} how @returns {LiveRow} */
const derived = (name, value, how) => ({ name, value, how, truth: "derived" });

const HELD_HOW = "num_computed_tokens and block tables of running requests";
const UP_TO = "up to the cursor";

/** @type {Figures} */
const held = (store) => {
  const { blocks, blockSize, tokens } = heldBlocks(store);
  if (!blocks) return [];
  const room = blocks * blockSize;
  const sum = `(${blocks} × ${blockSize} − ${tokens}) / (${blocks} × ${blockSize})`;
  const how = `${sum}; blocks shared count once`;
  return [
    derived("wasted of what is held", percent((room - tokens) / room), how),
    derived("tokens in held blocks", `${count(tokens)} of ${count(room)}`, HELD_HOW),
  ];
};

/** @type {Figures} */
const beside = (store) =>
  contiguousWays(store)
    .filter((way) => way.held > 0)
    .map(({ name, tokens, held: slots }) =>
      derived(
        `tokens if contiguous, ${(WAYS[name]?.label ?? name).toLowerCase()}`,
        percent(tokens / slots),
        `${count(tokens)} of ${count(slots)} slots, the same requests in one piece each`,
      ),
    );

/**
 * @param {Store} store @param {string} type
 * @param {(facts: any, store: Store) => LiveRow[]} rows
 */
function fromLatest(store, type, rows) {
  const event = latestOf(store, type);
  return event ? rows(event.facts, store) : [];
}

/** By the claim's number. @type {Record<number, Figures>} */
const FIGURES = {
  1: (store) => [...beside(store), ...held(store)],
  2: held,
  3: held,
  5: ({ header }) => [
    measured(
      "gpu_memory_utilization",
      String(header.config.gpu_memory_utilization),
      "this engine's setting",
    ),
  ],
  6: (store) => [
    measured(
      "preemptions",
      count(store.state.counters?.num_preemptions ?? 0),
      `num_preemptions ${UP_TO}`,
    ),
    derived(
      "computed again for them",
      plural(sumOf(store, "recomputed"), "token"),
      "computed when preempted − hit when resumed, of each",
    ),
  ],
  7: (store) => [
    derived(
      "blocks that several hold",
      count(sharedBlocks(store)),
      "blocks in more than one block table",
    ),
  ],
  8: ({ header }) => [
    measured("block_size", plural(header.config.block_size, "token"), "this engine's setting"),
  ],
  9: (store) => [
    measured(
      "look-ups that ended so",
      `${count(sumOf(store, "last_token_needed"))} of ${count(sumOf(store, "looked_up"))}`,
      `prefix_looked_up with the reason last_token_needed, ${UP_TO}`,
    ),
    ...fromLatest(store, "prefix_looked_up", (facts) => [
      measured(
        "latest look-up",
        `${count(facts.hit_tokens)} of ${count(facts.num_tokens)} hit`,
        "prefix_looked_up",
      ),
    ]),
  ],
  10: ({ header }) => {
    const { num_attention_heads: heads, num_kv_heads: kv, num_layers: layers } = header.model;
    if (!heads || !kv) return [];
    const { kv_bytes_per_token: size, head_dim: dim, kv_cache_dtype: dtype } = header.model;
    const how = `2 × ${layers} layers × ${kv} KV heads × ${dim} × bytes of ${dtype}`;
    return [
      derived(
        "query heads ÷ KV heads",
        `${heads} ÷ ${kv} = ${+(heads / kv).toFixed(2)}`,
        "num_attention_heads / num_kv_heads of the model",
      ),
      ...(size ? [derived("KV bytes a token", count(size), how)] : []),
    ];
  },
  11: (store) =>
    fromLatest(store, "memory_sized", (facts, { header }) => [
      measured(
        `memory here (${header.model.device ?? "no model"})`,
        bytes(facts.device_bytes),
        "device_bytes",
      ),
    ]),
  12: (store) =>
    fromLatest(store, "graph_replayed", (facts) => [
      derived(
        "padding of the latest replay",
        plural(facts.num_padded_tokens - facts.num_tokens, "row"),
        `${facts.num_padded_tokens} − ${facts.num_tokens}`,
      ),
    ]),
  13: (store) =>
    ["FULL", "PIECEWISE", "NONE"].map((mode) =>
      measured(
        mode === "NONE" ? "eager steps" : `${mode} replays`,
        count(sumOf(store, `mode ${mode}`)),
        `step_dispatched with the mode ${mode}, ${UP_TO}`,
      ),
    ),
  14: ({ state }) => {
    const sizes = state.dispatcher?.sizes ?? [];
    const text = sizes.length ? sizes.join(", ") : "none";
    return state.dispatcher ? [measured("sizes here", text, "the dispatcher's, in tokens")] : [];
  },
  15: (store) =>
    fromLatest(store, "attention_run", (facts) => [
      measured("attention ran by", facts.backend, "the latest attention_run"),
    ]),
  17: (store) =>
    fromLatest(store, "inputs_prepared", (facts) => [
      measured(
        "rows with a slot, latest step",
        `${count(facts.slot_mapping.length)} of ${count(facts.input_ids.length)}`,
        "slot_mapping and input_ids of the latest inputs_prepared",
      ),
    ]),
  18: ({ header }) => [
    measured(
      "max_num_batched_tokens",
      count(header.config.max_num_batched_tokens),
      "this engine's setting: the budget of a step",
    ),
  ],
  20: (store) =>
    fromLatest(store, "memory_sized", (facts) => [
      measured("blocks, set by", `${count(facts.num_blocks)}, ${facts.set_by}`, "memory_sized"),
    ]),
  21: (store) => {
    const phases = store.entryOnShow()?.phases ?? [];
    return ["execute", "sample"].flatMap((name) => {
      const phase = phases.find((each) => each.phase === name);
      const end = phase && phase.last <= store.cursor ? store.records[phase.last] : null;
      return end?.kind === "patch" && end.duration_us
        ? [measured(`${name}, this step`, micros(end.duration_us), `the phase ${name}`)]
        : [];
    });
  },
  24: (store) => [
    measured(
      "steps with both",
      count(sumOf(store, "mixed")),
      `batch_scheduled with prefill and decode tokens, ${UP_TO}`,
    ),
  ],
  25: (store) =>
    fromLatest(store, "memory_sized", (facts) => [
      measured("graph memory, estimated", bytes(facts.graph_bytes), "graph_bytes of memory_sized"),
    ]),
};

/** @param {Store} store @param {number} number of a claim @returns {LiveRow[]} */
export function figuresOf(store, number) {
  return Object.hasOwn(FIGURES, number) && store.header ? FIGURES[number](store) : [];
}

/** @param {string} said by the document */
export function saidText(said) {
  return `The document says “${said}”`;
}
