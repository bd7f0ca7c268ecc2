// @ts-check
/** Keys, values and weights in fewer bits: what that costs and saves, and did to a request. */
import { bytes, count, percent, plural } from "./format.js";

/** @import { EventRecord } from "../core/records.js" */
/** @import { Said } from "./ways.js" */

/** @typedef {{name: string, bytes: number, scale: number}} Dtype bytes; a scale a token and head */
/**
 * @typedef {{dtype: string, bytes: number, how: string, tokens: number, tokensHow: string}} Room
 *   bytes of a token
 */

/** @type {Dtype[]} the settings of `kv_cache_dtype`, and what `auto` is beside fp32 weights */
export const DTYPES = [
  { name: "float32", bytes: 4, scale: 0 },
  { name: "bfloat16", bytes: 2, scale: 0 },
  { name: "float16", bytes: 2, scale: 0 },
  { name: "int8_per_token_head", bytes: 1, scale: 4 },
  { name: "fp8_e4m3", bytes: 1, scale: 0 },
  { name: "fp8_e5m2", bytes: 1, scale: 0 },
];

const ERROR_HOW = "|pool − fp32| ÷ |fp32|, Euclidean norms";
const LOGITS_HOW =
  "the engine's weights and those in fp32, both with keys and values in fp32, where a token of " +
  "the text was chosen: |difference| ÷ |fp32|, Euclidean norms";

/** Bytes that a token takes, and their formula. @param {any} model @param {Dtype} dtype */
function bytesAToken(model, dtype) {
  const { num_layers: layers, num_kv_heads: heads, head_dim: dim } = model;
  const head = dtype.scale ? `(${dim} + ${dtype.scale} of a scale)` : `${dim} × ${dtype.bytes}`;
  return {
    bytes: 2 * layers * heads * (dim * dtype.bytes + dtype.scale),
    how: `2 (K and V) × ${layers} layers × ${heads} KV heads × ${head} bytes`,
  };
}

/**
 * The tokens that the pool's memory holds in each dtype; none where the log tells no model.
 * @param {any} model @param {any} config @returns {Room[]}
 */
export function roomByDtype(model, config) {
  const { num_gpu_blocks: blocks, block_size: size } = config;
  const pool = (model.kv_bytes_per_token ?? 0) * size * blocks;
  if (!pool || !model.num_layers || !model.num_kv_heads || !model.head_dim) return [];
  return DTYPES.map((dtype) => {
    const token = bytesAToken(model, dtype);
    const fit = Math.floor(pool / (token.bytes * size));
    return {
      dtype: dtype.name,
      ...token,
      tokens: Math.max(0, fit - 1) * size,
      tokensHow:
        `${bytes(pool)} of the pool ÷ (${count(token.bytes)} × block_size ${size}) = ` +
        `${plural(fit, "block")}, less block 0, × ${size}`,
    };
  });
}

/** @param {number[]} errors by layer */
export function mean(errors) {
  return errors.reduce((sum, each) => sum + each, 0) / Math.max(1, errors.length);
}

/** A relative error: `2.6 %`, `0.16 %`, `under 0.001 %`. @param {number} error */
export function errorText(error) {
  if (error === 0) return "0 %";
  if (error < 1e-5) return "under 0.001 %";
  return error < 0.00995 ? `${(error * 100).toPrecision(2)} %` : percent(error);
}

/** @param {string} what */
export const errorHow = (what) => `${what}: ${ERROR_HOW}`;

/**
 * The view's sentence.
 * @param {any} model @param {Room[]} rooms @param {string|null} request
 * @param {EventRecord|null} event
 * @returns {Said[]}
 */
export function precisionWords(model, rooms, request, event) {
  if (event) return comparedWords(event.facts);
  const room = rooms.find((each) => each.dtype === model.kv_cache_dtype);
  if (!room) return [{ text: "This log does not say in which dtype keys and values are kept." }];
  const exact = rooms[0];
  const weights = weightsText(model);
  const measured = request ? `What that did to ${request} is measured on demand.` : "";
  if (room === exact) {
    const kept = "Keys and values are kept in float32, as they come: none is rounded.";
    return [{ text: weights ? `${kept} ${weights} ${measured}` : kept }];
  }
  return [
    { text: `Keys and values are rounded to ${room.dtype}: ` },
    { text: `${bytes(room.bytes)} a token`, how: room.how },
    { text: " where float32 takes " },
    { text: bytes(exact.bytes), how: exact.how },
    { text: [".", weights, measured].filter(Boolean).join(" ") },
  ];
}

/** What is rounded of the weights; nothing where they are in float32. @param {any} model */
function weightsText(model) {
  const { quantization, dtype, quantized_layers: some, linear_layers: all } = model;
  if (!quantization) return dtype === "float32" || !dtype ? "" : `Weights are in ${dtype}.`;
  return `Of ${plural(all, "linear layer")}, ${count(some)} have weights in ${quantization}.`;
}

/** @param {any} f of kv_cache_compared @returns {Said[]} */
function comparedWords(f) {
  return [...cacheWords(f), ...weightWords(f), ...textWords(f)];
}

/** What the weights alone do. @param {any} f @returns {Said[]} */
function weightWords(f) {
  if (!f.logits_error) return [];
  return [
    { text: `Its weights, in ${f.weights}, move logits by ` },
    { text: errorText(f.logits_error), how: LOGITS_HOW },
    { text: ". " },
  ];
}

/** @param {any} f @returns {Said[]} */
function cacheWords(f) {
  if (!f.num_tokens) return [{ text: `The pool has no key or value of ${f.request}. ` }];
  const of = `mean over ${plural(f.key_errors.length, "layer")}`;
  /** @type {Said[]} */
  return [
    { text: "In " },
    { text: plural(f.num_tokens, "token"), how: "its first ones, whose K and V the pool has" },
    { text: ` of ${f.request}, kept in ${f.dtype}, keys are off by ` },
    { text: errorText(mean(f.key_errors)), how: errorHow(of) },
    { text: " and values by " },
    { text: errorText(mean(f.value_errors)), how: errorHow(of) },
    { text: ". " },
  ];
}

/** @param {any} f @returns {Said[]} */
function textWords(f) {
  if (!f.num_outputs) return [{ text: "It has written nothing yet." }];
  const how = f.greedy
    ? "at each place, the token with the largest logit in fp32 against the one that was written"
    : "at each place, what the request's own draw chooses by the logits in fp32, against what " +
      "was written";
  return f.differs_at < 0
    ? [
        { text: "Its " },
        { text: plural(f.num_outputs, "token"), how },
        { text: " of text are those that fp32 writes." },
      ]
    : [
        { text: "Its text goes another way than in fp32 at " },
        { text: `token ${f.differs_at + 1}`, how },
        { text: ` of ${count(f.num_outputs)}.` },
      ];
}
