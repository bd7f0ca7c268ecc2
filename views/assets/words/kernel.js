// @ts-check
/** The kernel room, in words: what was traced, how it came about, what each turn read. */
import { bytes, count, list, plural } from "./format.js";

/**
 * @typedef {{block: number, key_bytes: number, value_bytes: number,
 *   maximum: (number|null)[], total: (number|null)[], norm: (number|null)[]}} Visit
 *   one page; after it, what each row of the program holds
 * @typedef {{grid: number[], first_row: number, num_rows: number, visits: Visit[]}} Program
 * @typedef {{request: string, step: number, layer: number, kv_head: number,
 *   query_heads: number[], num_kv_heads: number, head_dim: number, kv_itemsize: number,
 *   scale_bytes: number, sliding_window: number|null,
 *   block_size: number, num_blocks: number, blocks: number[], seq_len: number,
 *   first_position: number, num_rows: number, num_scheduled: number, backend: string,
 *   kv_difference: number, kernel: string, programs: Program[], difference: number,
 *   num_decodes: number, gpu: string, processors: number, splits: number,
 *   reduction: Reduction|null, seconds: number}} KernelTrace
 *   as POST /api/engine/kernel_trace has it
 * @typedef {{maximum: (number|null)[], total: (number|null)[], norm: (number|null)[],
 *   shrink: (number|null)[]}} Share what one program left, for each query head; `shrink`: by which
 *   factor it was too large
 * @typedef {{shares: Share[], maximum: (number|null)[], total: (number|null)[],
 *   norm: (number|null)[]}} Reduction of all shares of a decode to one softmax
 * @typedef {{name: string, kind: "measured"|"derived", how: string, bytes: number,
 *   own: boolean}} BytesRow
 */

export const TRACED_HOW = "the addresses that the kernel loaded from, in Triton's interpreter";

/** @param {Visit} visit */
export function bytesOf(visit) {
  return visit.key_bytes + visit.value_bytes;
}

/** @param {Visit[]} visits */
function bytesOfAll(visits) {
  return visits.reduce((sum, visit) => sum + bytesOf(visit), 0);
}

/** What was traced, in a sentence. @param {KernelTrace} trace */
export function tracedWords(trace) {
  const { programs, query_heads: heads, num_rows: rows } = trace;
  const visits = programs.flatMap((program) => program.visits);
  const last = trace.first_position + rows - 1;
  const cut = rows < trace.num_scheduled ? `the last ${rows} of ` : "";
  const what =
    trace.num_scheduled === 1
      ? "1 new token"
      : `${cut}${plural(trace.num_scheduled, "token")}, positions ` +
        `${trace.first_position} to ${last}`;
  const asked =
    heads.length === 1 ? `query head ${heads[0]}` : `query heads ${list(heads.map(String), 16)}`;
  const who = programs.length === 1 ? "One program" : plural(programs.length, "program");
  return (
    `${who} of ${trace.kernel} attended for ${trace.request} (${what}) in layer ${trace.layer} ` +
    `of step ${trace.step}: KV head ${trace.kv_head}, which ${asked} ` +
    `${heads.length === 1 ? "has" : "share"}; ${plural(visits.length, "page")} read, ` +
    `${bytes(bytesOfAll(visits))}.${splitWords(trace)}${windowWords(trace)}`
  );
}

/** Why a decode has several programs. @param {KernelTrace} trace */
function splitWords(trace) {
  const { splits, num_decodes: decodes, num_kv_heads: kv, processors, gpu } = trace;
  if (splits === 1) return "";
  const parts = sharesOf(trace).map((share) => `${Math.round(100 * share)} %`);
  return (
    ` ${plural(decodes, "decode")} × ${plural(kv, "KV head")} are few programs for the ` +
    `${plural(processors, "processor")} of a GPU (${gpu}): so ${splits} share the pages of each. ` +
    `reduce_splits_kernel then makes one softmax of theirs, each weighed by e^maximum × sum: ` +
    `for query head ${trace.query_heads[0]}, ${list(parts, 64)}.`
  );
}

/**
 * What each program's share is worth in the softmax of the first query head.
 * @param {KernelTrace} trace
 */
function sharesOf({ programs }) {
  const ends = programs.map(({ visits }) => visits[visits.length - 1]);
  const most = Math.max(...ends.map((end) => end?.maximum[0] ?? -Infinity));
  const worth = ends.map((end) => {
    const maximum = end?.maximum[0] ?? -Infinity;
    return maximum === -Infinity ? 0 : (end?.total[0] ?? 0) * Math.exp(maximum - most);
  });
  const sum = worth.reduce((so_far, each) => so_far + each, 0);
  return worth.map((each) => each / (sum || 1));
}

// -- the reduction --------------------------------------------------------------------------------

/** Moves of a reduction, after its beginning. */
export const REDUCTION_MOVES = 4;
export const REDUCED_HOW = "what reduce_splits_kernel loaded and stored, in Triton's interpreter";
export const SHARE_HOW = "what paged_decode_kernel left of this share in memory";
export const SHRINK_HOW = "e^(its maximum − the largest of all)";
export const SHRUNK_HOW = "its sum × its factor";
export const LARGEST_HOW = "the largest of the shares' maxima";
export const TOTAL_HOW = "the sums of the shares × their factors, added";
export const WORTH_HOW = "its sum × its factor ÷ the sum of all";
export const OUTPUT_HOW = "length of the output that reduce_splits_kernel stored";
export const REDUCTION = "The shares become one softmax";
export const REDUCTION_COLUMNS = ["Share", "Maximum", "Factor", "Sum", "Norm", "Of the output"];
export const ALL_SHARES = "together";

/** The choice of the reduction, beside the programs. @param {KernelTrace} trace */
export const reductionName = (trace) =>
  `reduce_splits_kernel: ${plural(trace.splits, "share")} become one softmax`;

/** @param {number|null} value */
export function numberText(value) {
  if (value === null) return "–";
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);
}

/**
 * Where the reduction stands after so many moves, for one query head.
 * @param {Reduction} reduction @param {number} head its place in the program @param {number} at
 */
export function reductionWords({ shares, maximum, total, norm }, head, at) {
  const n = plural(shares.length, "share");
  if (at === 0)
    return `${n} are in memory: of each its largest score, its sum, its weighted sum of values.`;
  if (at === 1) return `The largest score of all is ${numberText(maximum[head])}.`;
  if (at === 2)
    return "Each share is shrunk by e^(its maximum − the largest): as if it had known that one.";
  if (at === 3) return `The sums, so shrunk, add up to ${numberText(total[head])}.`;
  return (
    "The weighted sums of values, so shrunk, are added and divided by that: the output, of norm " +
    `${numberText(norm[head])}.`
  );
}

/** Why pages at the beginning are left out. @param {KernelTrace} trace */
function windowWords({ sliding_window: window, seq_len, num_rows: rows, block_size }) {
  const hidden =
    window === null ? 0 : Math.floor(Math.max(0, seq_len - rows + 1 - window) / block_size);
  if (!hidden) return "";
  const which = hidden === 1 ? "The first page lies" : `The first ${hidden} pages lie`;
  return ` ${which} outside of the sliding window of ${plural(window ?? 0, "token")}.`;
}

/** The program's own rows. @param {KernelTrace} trace @param {Program} program */
export function programWords(trace, { grid, first_row, num_rows, visits }) {
  const pages = plural(visits.length, "page");
  if (trace.splits > 1)
    return `Program (${grid.join(", ")}): share ${grid[2] + 1} of ${trace.splits}, ${pages}`;
  const first = trace.first_position + first_row;
  const where =
    num_rows === 1 ? `position ${first}` : `positions ${first} to ${first + num_rows - 1}`;
  return `Program (${grid.join(", ")}): ${where}, ${pages}`;
}

/** Tokens of context in a page. @param {KernelTrace} trace @param {number} block */
export function tokensIn(trace, block) {
  const page = trace.blocks.indexOf(block);
  return Math.max(0, Math.min(trace.block_size, trace.seq_len - page * trace.block_size));
}

/**
 * Where a program stands after so many pages.
 * @param {KernelTrace} trace @param {Program} program @param {number} at
 */
export function standWords(trace, program, at) {
  const { visits } = program;
  if (at === 0) return `Nothing read yet: ${plural(visits.length, "page")} to go.`;
  const visit = visits[at - 1];
  const page = trace.blocks.indexOf(visit.block);
  return (
    `Read ${count(at)} of ${count(visits.length)}: entry ${page} of the block table is block ` +
    `${visit.block}, ${plural(tokensIn(trace, visit.block), "token")}, ${bytes(bytesOf(visit))}; ` +
    `${bytes(bytesOfAll(visits.slice(0, at)))} so far.`
  );
}

/**
 * What the traced programs read, and what they would with other numbers of KV heads.
 * @param {KernelTrace} trace @returns {BytesRow[]}
 */
export function bytesRows(trace) {
  const { programs, head_dim: dim, kv_itemsize: size, num_kv_heads: kv, query_heads } = trace;
  const scale = trace.scale_bytes;
  const visits = programs.flatMap((program) => program.visits);
  const tokens = visits.reduce((sum, visit) => sum + tokensIn(trace, visit.block), 0);
  const query = query_heads.length * kv;
  const derived = (/** @type {string} */ name, /** @type {number} */ heads) => ({
    name: `${name}, ${plural(heads, "KV head")}`,
    kind: /** @type {const} */ ("derived"),
    how:
      `2 (K and V) × ${plural(tokens, "token")} in the pages read × ` +
      `${scale ? "(" : ""}${dim} × ${plural(size, "byte")}` +
      `${scale ? ` + ${scale} of its scale)` : ""} × ${plural(heads, "KV head")}`,
    bytes: 2 * tokens * (dim * size + scale) * heads,
    own: heads === kv,
  });
  const grouped = kv > 1 && kv < query ? [derived("GQA", kv)] : [];
  return [
    {
      name: `KV head ${trace.kv_head}, traced`,
      kind: "measured",
      how: TRACED_HOW,
      bytes: bytesOfAll(visits),
      own: false,
    },
    derived("MQA", 1),
    ...grouped,
    ...(query > 1 ? [derived("MHA", query)] : []),
  ];
}

/** A difference as the page shows it. @param {number} difference */
export function differenceText(difference) {
  return difference === 0 ? "0" : difference.toExponential(1);
}
