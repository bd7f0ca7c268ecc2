// @ts-check
/**
 * What the log says of blocks' past: who entered what a block has cached and what became of it, who
 * holds it, since when nobody does.
 */

/** @import { EventRecord, Reason } from "./records.js" */
/** @import { Numbers } from "./origins.js" */

/**
 * @typedef {{hash: string, parent: string, request: string, logical: number, step: number}}
 *   Content what a block has cached, and who entered it ("" where the log does not go back so far)
 * @typedef {{content: Content, how: string, step: number, to: string}}
 *   Lost content that no block had any more
 */

/** As of the record that was read last. */
export class BlockOrigins {
  /** @param {number} blockSize in tokens */
  constructor(blockSize) {
    this.blockSize = blockSize;
    /** @type {Map<number, Content>} by block */
    this.content = new Map();
    /** @type {Map<string, Set<number>>} blocks of a hash */
    this.copies = new Map();
    /** @type {Map<string, Set<number>>} blocks by the hash of the block before */
    this.following = new Map();
    /** @type {Map<string, Lost>} by hash */
    this.lost = new Map();
    /** @type {Map<number, Set<string>>} of a block */
    this.holders = new Map();
    /** @type {Map<number, number>} of a block: the step in which its last holder let go */
    this.unusedSince = new Map();
    /** @type {Map<string, number>} blocks of its own content at its latest look-up */
    this.ownHits = new Map();
    /** @type {Map<string, number[]>} */
    this.prompts = new Map();
    /** @type {Map<string, string>} */
    this.salts = new Map();
    /** @type {Map<string, number[]>} */
    this.outputs = new Map();
  }

  /**
   * The state before the first record: who holds what is known, its past is not.
   * @param {any} state @param {number} step
   */
  begin(state, step) {
    for (const [id, request] of Object.entries(state?.requests ?? {})) {
      this.outputs.set(id, Object.values(request.output_token_ids ?? {}));
      for (const block of Object.values(request.block_table ?? {}))
        setIn(this.holders, block).add(id);
    }
    for (const [id, block] of Object.entries(state?.blocks ?? {})) {
      if (block.hash !== undefined)
        this.enter(Number(id), { hash: block.hash, parent: "?", request: "", logical: 0, step });
    }
  }

  // -- tokens ------------------------------------------------------------------------------------

  /** @param {string} id @param {any} changes of a request's record */
  takeRequest(id, changes) {
    if (!changes.prompt_token_ids) return;
    this.prompts.set(id, changes.prompt_token_ids);
    this.salts.set(id, changes.cache_salt ?? "");
  }

  /** @param {any} facts of token_appended */
  appended({ request, token }) {
    const output = this.outputs.get(request) ?? [];
    if (output.length === 0) this.outputs.set(request, output);
    output.push(token);
  }

  /**
   * The tokens of a full block of a request's table; [] where the log has not all of them.
   * @param {string} request @param {number} logical @returns {number[]}
   */
  tokens(request, logical) {
    const prompt = this.prompts.get(request) ?? [];
    const output = this.outputs.get(request) ?? [];
    const [first, last] = [logical * this.blockSize, (logical + 1) * this.blockSize];
    const tokens = prompt.slice(first, last);
    tokens.push(
      ...output.slice(Math.max(0, first - prompt.length), Math.max(0, last - prompt.length)),
    );
    return tokens.length === this.blockSize ? tokens : [];
  }

  // -- what they hold ----------------------------------------------------------------------------

  /** @param {EventRecord} event @param {any} facts @returns {Numbers} */
  lookedUp({ reason }, facts) {
    /** @type {Map<string, number>} */
    const sources = new Map();
    for (const block of facts.hit_blocks) {
      const name = this.content.get(block)?.request ?? "";
      sources.set(name, (sources.get(name) ?? 0) + 1);
    }
    this.ownHits.set(facts.request, sources.get(facts.request) ?? 0);
    return {
      ...(sources.size > 0 ? { sources: [...sources] } : {}),
      ...(reason?.code === "first_miss" ? this.missed(facts, reason) : {}),
    };
  }

  /**
   * What became of the content that missed, or where the nearest cached content differs.
   * @param {any} facts @param {Reason} reason @returns {Numbers}
   */
  missed(facts, reason) {
    const lost = this.lost.get(reason.hash);
    if (lost) {
      return {
        miss: lost.how,
        cached_by: lost.content.request,
        cached_step: lost.content.step,
        lost_step: lost.step,
        lost_to: lost.to,
      };
    }
    const before = this.content.get(facts.hit_blocks[facts.hit_blocks.length - 1])?.hash ?? "";
    const following = this.following.get(before) ?? new Set();
    return this.parting(facts.request, reason.block, following) ?? { miss: "new" };
  }

  /**
   * The first token that differs from the cached block that has most tokens in common. Content of
   * another salt is no nearer for having some; it has to have them all.
   * @param {string} request @param {number} logical @param {Set<number>} following
   * @returns {Numbers|null}
   */
  parting(request, logical, following) {
    const tokens = this.tokens(request, logical);
    const salt = this.salts.get(request);
    let [most, nearest, theirs] = [-1, -1, tokens];
    for (const block of following) {
      const { request: other, logical: place } = /** @type {Content} */ (this.content.get(block));
      const others = this.tokens(other, place);
      const same = numCommon(tokens, others);
      const mayHit = this.salts.get(other) === salt || same === tokens.length;
      if (others.length > 0 && mayHit && same > most)
        [most, nearest, theirs] = [same, block, others];
    }
    if (tokens.length === 0 || nearest < 0) return null;
    const numbers = { other: this.content.get(nearest)?.request, block: nearest };
    if (most === tokens.length) return { miss: "salted", ...numbers };
    return {
      miss: "parted",
      position: logical * this.blockSize + most,
      token: tokens[most],
      other_token: theirs[most],
      ...numbers,
    };
  }

  /**
   * A request takes blocks; returns who held some of them before.
   * @param {any} facts of blocks_hit or blocks_allocated @returns {string[]}
   */
  hold({ request, blocks }) {
    /** @type {Set<string>} */
    const others = new Set();
    for (const block of blocks) {
      const holders = setIn(this.holders, block);
      for (const other of holders) others.add(other);
      holders.add(request);
    }
    return [...others];
  }

  /** @param {EventRecord} event @param {any} facts @returns {Numbers} */
  freed({ step }, { request, blocks, returned }) {
    /** @type {Set<string>} */
    const others = new Set();
    for (const block of blocks) {
      const holders = setIn(this.holders, block);
      holders.delete(request);
      for (const other of holders) others.add(other);
    }
    for (const block of returned) this.unusedSince.set(block, step);
    const kept = returned.filter((/** @type {number} */ block) => this.content.has(block)).length;
    return { kept, holders: [...others] };
  }

  /** @param {EventRecord} event @param {any} facts @returns {Numbers} */
  evicted({ step }, { block, request }) {
    const content = this.content.get(block);
    const unused = this.unusedSince.get(block);
    this.leave(block, "evicted", step, request);
    return {
      ...(content && {
        cached_by: content.request,
        cached_step: content.step,
        logical: content.logical,
      }),
      ...(unused !== undefined && { unused_since: unused }),
    };
  }

  /** @param {EventRecord} event @param {any} facts @returns {Numbers} */
  cached({ step }, { request, first_index: first, parent, blocks, hashes }) {
    /** @type {Set<number>} */
    const copies = new Set();
    let before = parent;
    for (const [n, block] of blocks.entries()) {
      const hash = hashes[n] ?? "";
      for (const copy of setIn(this.copies, hash)) copies.add(copy);
      this.enter(block, { hash, parent: before, request, logical: first + n, step });
      before = hash;
    }
    return copies.size > 0 ? { copies: [...copies] } : {};
  }

  /** @param {EventRecord} event @param {any} facts @returns {Numbers|null} */
  reset({ step }, { done }) {
    if (!done) return null;
    const blocks = [...this.content.keys()];
    for (const block of blocks) this.leave(block, "reset", step, "");
    return { blocks };
  }

  /** @param {number} block @param {Content} content */
  enter(block, content) {
    // There is something to replace only in a log that no engine wrote.
    this.leave(block, "replaced", content.step, "");
    this.content.set(block, content);
    setIn(this.copies, content.hash).add(block);
    setIn(this.following, content.parent).add(block);
  }

  /** @param {number} block @param {string} how @param {number} step @param {string} to */
  leave(block, how, step, to) {
    const content = this.content.get(block);
    if (!content) return;
    this.content.delete(block);
    const copies = setIn(this.copies, content.hash);
    copies.delete(block);
    setIn(this.following, content.parent).delete(block);
    if (copies.size === 0) this.lost.set(content.hash, { content, how, step, to });
  }
}

/** @param {number[]} tokens @param {number[]} others how many they have in common at the start */
function numCommon(tokens, others) {
  const end = Math.min(tokens.length, others.length);
  let n = 0;
  while (n < end && tokens[n] === others[n]) n += 1;
  return n;
}

/** @template K, V @param {Map<K, Set<V>>} map @param {K} key @returns {Set<V>} */
function setIn(map, key) {
  let set = map.get(key);
  if (!set) map.set(key, (set = new Set()));
  return set;
}
