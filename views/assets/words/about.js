// @ts-check
/** What each engine box is, in prose. Checked against what holds of vLLM 0.26.0. */

/** @type {Record<string, string[]>} */
const ABOUT = {
  "client-req": [
    "Whoever sends prompts: this page, or any OpenAI client over HTTP. The text comes back " +
      "token by token to those who stream (as server-sent events), in one piece to the others, " +
      "and nothing that went out is ever taken back.",
  ],
  "async-engine": [
    "The front end. It turns text into tokens, hands requests to the engine core, turns new " +
      "tokens into text and streams it. Commands such as run, pause and step act here.",
    "In vLLM this is the API server's process and the engine core runs in another. Here both " +
      "share one process.",
  ],
  scheduler: [
    "Decides in every step which requests get how many tokens. It knows no prefill or decode " +
      "phase: a request wants its known tokens minus its computed ones, running requests first, " +
      "within one token budget for all.",
    "A long prompt takes what the budget has left, so there is no fixed chunk size. When " +
      "blocks run out it preempts a running request: its blocks go back to the free queue. What " +
      "is still cached when it resumes is hit, the rest is computed again; nothing is swapped " +
      "out.",
  ],
  "block-manager": [
    "The page table of the KV cache. It maps each request's logical blocks to physical " +
      "blocks, finds cached prefixes by the hash of full blocks, and hands out blocks from the " +
      "head of the free queue.",
    "At most all tokens but one may hit, in whole blocks: the last token must be computed to " +
      "get its logits.",
  ],
  "gpu-runner": [
    "Executes a step: it flattens the scheduled tokens of all requests into one batch, runs " +
      "the model over it, keeps the logits, and then samples a token for each request whose " +
      "known tokens are all computed.",
  ],
  "cuda-graph": [
    "Chooses how the forward runs: by replaying a graph captured for a batch size, with " +
      "padding up to that size, or eagerly, one operation after the other. On a CPU a graph is " +
      "a list of operations, recorded in one forward and run again without the decoder's " +
      "modules; its reasons stand in the log.",
    "The default, FULL_AND_PIECEWISE as in vLLM 0.26.0, replays a full graph for a uniform " +
      "decode batch and a piecewise one, with attention left out, otherwise. Preparing inputs " +
      "and padding remain as costs.",
  ],
  "paged-attn": [
    "Attention that reads K and V through block tables, so that a request's blocks may lie " +
      "anywhere in the pool. Prefill and decode both write through a slot mapping.",
    "The original CUDA kernel of that name is history in vLLM: V1 runs FlashAttention, " +
      "FlashInfer or Triton backends over the same paged layout.",
  ],
  "physical-vram": [
    "The memory that holds the weights and the KV pool: device memory on a GPU, main memory " +
      "on a CPU. The pool is allocated ahead and cut into blocks; block 0 is kept back as the " +
      "null block.",
  ],
  "shared-gqa": [
    "Not a cache of its own. With grouped-query attention several query heads share one KV " +
      "head, so fewer KV bytes are stored and read for each token. The factor is query heads ÷ " +
      "KV heads of the model; no bandwidth is multiplied.",
  ],
};

/**
 * Boxes of vLLM's that this engine has not, by their ids: what stands in their place.
 * @type {Record<string, string>}
 */
const NOT_HERE = {
  "engine-core":
    "Not a box of its own here. In vLLM it is a process with a busy loop; here the loop is " +
      "engine/core.py, in the one process that there is: a step is one turn of it, and its " +
      "phases stand beside the slider.",
  executor:
    "Not here. In vLLM it hands each step to the workers, by a plain call or through shared " +
      "memory. This engine has one device and calls its model runner itself: an arrow through " +
      "the executor lights when that call is made.",
  worker:
    "Not here. In vLLM it owns one GPU, profiles its memory and holds the model runner. This " +
      "engine calls the runner without one; what a worker finds out at the start is in the box " +
      "of the memory.",
  sampler:
    "Not a box of its own here: as in vLLM it is a part of the model runner. Open the model " +
      "runner to see what each token was chosen from.",
  "dp-coordinator":
    "Not here: this is one engine, without data parallelism. In vLLM it tells the API servers " +
      "how many requests each rank has, and has the ranks go through their waves together.",
};

/** What is said of a box without a live counterpart. @param {string} id of the document */
export function notHere(id) {
  const own = Object.hasOwn(NOT_HERE, id) ? NOT_HERE[id] : "";
  return (
    own ||
    "This component has no live counterpart in the engine. What stands here is the document's own."
  );
}

/** @param {string|null} name @returns {string[]} */
export function aboutOf(name) {
  return name !== null && Object.hasOwn(ABOUT, name) ? ABOUT[name] : [];
}
