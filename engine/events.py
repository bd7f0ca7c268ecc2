"""The vocabulary of the log: what can happen, to whom, on which arrow, and why.

An event's class stands at a box of the map and, where it travelled, on an arrow (`@at`); its
fields are the facts. A reason's class is its code, its fields are the numbers behind the decision.
Both are named tuples, since a running engine makes them by the thousand. Sizes are counts of tokens
or blocks as named, times are microseconds.

Adding an event: one class here, one `trace.event(...)` where it happens, one sentence on the page.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar, get_args


class Phase(StrEnum):
    """The parts of a step, in order. The engine can stop between any two.

    `command` is no part of a step: it marks what the front end did between two phases.
    """

    ARRIVE = "arrive"
    SCHEDULE = "schedule"
    PREPARE = "prepare"
    EXECUTE = "execute"
    SAMPLE = "sample"
    UPDATE = "update"
    OUTPUT = "output"
    COMMAND = "command"


STEP_PHASES = tuple(phase for phase in Phase if phase is not Phase.COMMAND)
EXECUTOR_PHASES = (Phase.PREPARE, Phase.EXECUTE, Phase.SAMPLE)  # the rest is the scheduler's side


# --- reasons -----------------------------------------------------------------------------------


class SeatsFull(NamedTuple):
    """Nobody is admitted: as many requests run as may."""

    running: int
    max_num_seqs: int


class BudgetSpent(NamedTuple):
    """No tokens are left in this step."""

    max_num_batched_tokens: int


class Fits(NamedTuple):
    """The blocks can be had: the first in the free queue are given.

    `needs` may be more than are given now: at admission the whole known sequence must fit, and
    cached blocks that are taken out of the free queue count.
    """

    needs: int
    free: int
    watermark: int  # must stay free beside them
    lookahead: int = 0  # slots among them that no token of this step takes: the drafter's


class DoesNotFit(NamedTuple):
    """The blocks cannot be had: `needs` and `watermark` together are more than are free."""

    needs: int
    free: int
    watermark: int
    lookahead: int = 0


class PreemptedThisStep(NamedTuple):
    """Nobody is admitted in a step in which somebody was preempted."""

    preempted: int


class MovedUp(NamedTuple):
    """Its place was counted already: `victim`, passed over before in this step, has left the list.

    (vLLM 0.26.0 walks the running list by number; whoever moves up to a number that was, is not
    asked in this step.)
    """

    victim: str


class ChunkingOff(NamedTuple):
    """Chunked prefill is off, and the whole prompt is more than the budget has left."""

    wants: int
    budget_left: int


class ModelLengthReached(NamedTuple):
    """The request may grow no further."""

    max_model_len: int


class WholeRequest(NamedTuple):
    """All that the request wanted was given."""

    wanted: int


class BudgetLeft(NamedTuple):
    """The request wanted more than the step's budget had left."""

    wanted: int
    budget_left: int


class LongPrefillThreshold(NamedTuple):
    """The request wanted more than one request may get in a step."""

    wanted: int
    long_prefill_token_threshold: int


class FirstMiss(NamedTuple):
    """The walk over the prefix ended at this logical block, whose content is not cached."""

    block: int
    hash: str  # of the content that was looked for


class BlockNotFull(NamedTuple):
    """The walk ended at this logical block, which the tokens known do not fill: it has no hash."""

    block: int
    num_tokens: int  # in it


class LastTokenNeeded(NamedTuple):
    """The walk ended because at least one token must be computed: at most `limit` may hit.

    So where the last block is full, it is computed again, cached or not.
    """

    limit: int


class LastHitGivenUp(NamedTuple):
    """The content of this logical block is cached, and is computed again all the same.

    The drafter (eagle) works on what the model makes of the last tokens, which no cache keeps: the
    last block that hits is always given up, the end of the prompt or not.
    """

    block: int


class PaddedToUniform(NamedTuple):
    """The one token that is wanted comes with as many made-up drafts as others may have.

    Every request of the step is a decode then, of the same number of rows: a graph fits them all.
    """

    num_speculative_tokens: int


class PaddingDoesNotFit(NamedTuple):
    """The one token would fit; with its padding it is too much, and so it waits."""

    wants: int  # padding included
    budget_left: int
    num_computed_tokens: int
    max_model_len: int


class FreeQueueHead(NamedTuple):
    """The block was first in the free queue."""

    free: int


class BlockFilled(NamedTuple):
    """All tokens of these blocks are known and scheduled."""

    num_tokens: int


class NeverComputed(NamedTuple):
    """The step that would have computed these blocks goes on without their request."""

    num_computed_tokens: int  # of the request, all before these blocks


class LastRunning(NamedTuple):
    """The victim is the last of the running list."""

    running: int


class LowestPriority(NamedTuple):
    """The victim has the largest (priority, arrival) of those running."""

    priority: int
    running: int
    same_priority: int  # of those running, itself included: it arrived last of them


class MaxTokensReached(NamedTuple):
    """The request has all the tokens it asked for."""

    max_tokens: int


class LastTokenInFlight(NamedTuple):
    """The token that a batch in flight will deliver is the last that the request asked for."""

    max_tokens: int


class EosToken(NamedTuple):
    """The model ended the text."""

    token: int


class StopToken(NamedTuple):
    """A token that the request named as a stop."""

    token: int


class StopString(NamedTuple):
    """A string that the request named as a stop."""

    stop_index: int  # among the strings it named


class ClientAborted(NamedTuple):
    """The client, or the page, took the request back."""


class UncomputedDependency(NamedTuple):
    """The request hit a block that an aborted request would have computed in this step."""

    block: int


class ResetRequested(NamedTuple):
    """The prefix cache is reset: nobody may hold blocks, and what is in flight is void."""


class PromptTooLong(NamedTuple):
    """A prompt must leave room for one token."""

    num_prompt_tokens: int
    max_model_len: int


class PromptTextTooLong(NamedTuple):
    """A prompt's text has more characters than all tokens it may have can stand for."""

    num_characters: int
    longest_token: int  # characters
    max_model_len: int


class UniformDecode(NamedTuple):
    """Every request has as many rows as a decode has: a full graph is for such batches."""

    num_requests: int
    query_len: int  # 1, and the tokens that speculation proposes


class NotUniformDecode(NamedTuple):
    """Some requests have other rows than a decode has: no full graph is for such a batch."""

    query_len: int  # of a decode
    num_requests: int  # that have more rows, or fewer
    num_tokens: int  # rows of these


class ModeForAnyBatch(NamedTuple):
    """The setting cudagraph_mode makes no difference between batches."""

    mode: str


class AboveLargestSize(NamedTuple):
    """The batch is larger than the largest captured one."""

    batch: int
    largest: int


class AboveLargestDecodeSize(NamedTuple):
    """The batch is padded to more rows than all seats fill, and no full graph is captured so."""

    batch: int
    largest: int  # of the full graphs


class EnforceEager(NamedTuple):
    """The engine was told never to use a graph."""


class CannotCapture(NamedTuple):
    """The model's forward can be no graph: it could not be recorded, or a replay differed."""

    message: str


class CacheLimitsLength(NamedTuple):
    """No max_model_len was set, and the KV cache holds fewer tokens than the model knows."""

    holds: int
    model_max_len: int


class BlocksInUse(NamedTuple):
    """The prefix cache cannot be reset while requests hold blocks."""

    used: int


Reason = (
    SeatsFull
    | BudgetSpent
    | Fits
    | DoesNotFit
    | PreemptedThisStep
    | MovedUp
    | ChunkingOff
    | ModelLengthReached
    | WholeRequest
    | BudgetLeft
    | LongPrefillThreshold
    | FirstMiss
    | BlockNotFull
    | LastTokenNeeded
    | LastHitGivenUp
    | PaddedToUniform
    | PaddingDoesNotFit
    | FreeQueueHead
    | BlockFilled
    | NeverComputed
    | LastRunning
    | LowestPriority
    | MaxTokensReached
    | LastTokenInFlight
    | EosToken
    | StopToken
    | StopString
    | ClientAborted
    | UncomputedDependency
    | ResetRequested
    | PromptTooLong
    | PromptTextTooLong
    | UniformDecode
    | NotUniformDecode
    | ModeForAnyBatch
    | AboveLargestSize
    | AboveLargestDecodeSize
    | EnforceEager
    | CannotCapture
    | CacheLimitsLength
    | BlocksInUse
)


# --- events ------------------------------------------------------------------------------------


class Place(NamedTuple):
    """Where on the map an event is seen: the box, and the arrow it travelled if any."""

    component: str
    connection: str | None


PLACES: dict[type[Any], Place] = {}
E = TypeVar("E")


def at(component: str, connection: str | None = None) -> Callable[[type[E]], type[E]]:
    """Give an event class its place on the map."""

    def register(cls: type[E]) -> type[E]:
        PLACES[cls] = Place(component, connection)
        return cls

    return register


@at("physical-vram")
class MemorySized(NamedTuple):
    """The engine starts: its memory is divided, and what is the KV cache's is cut into blocks.

    Where a budget says how many blocks there are, a profiling run has measured the rest.
    """

    set_by: str  # the setting that says how large the pool is
    device_bytes: int  # all the device's memory
    budget_bytes: int  # for all that follows; 0 where the pool was set by itself
    weight_bytes: int  # measured; all engines of the model share them
    activation_bytes: int  # most that the profiling run had allocated at a time
    profiled_tokens: int  # rows of that run; 0: there was none
    graph_bytes: int  # of all graphs there can be: that of the largest, whose memory they share
    graph_sizes: tuple[int, ...]  # their rows, largest first
    available_bytes: int  # for the KV cache
    pool_bytes: int  # of its tensors, as they are; 0: nothing that runs a model has one
    bytes_per_block: int
    num_blocks: int
    block_size: int
    max_model_len: int


@at("async-engine", "client-to-engine")
class RequestSubmitted(NamedTuple):
    """A client's request was accepted; the next step will take it in."""

    request: str
    num_prompt_tokens: int
    max_tokens: int
    source: str  # "page" or "http"


@at("async-engine", "client-to-engine")
class RequestRefused(NamedTuple):
    """A client's request can never be served."""

    request: str


@at("scheduler", "engine-to-sched")
class RequestArrived(NamedTuple):
    """A request joined the waiting queue."""

    request: str
    num_prompt_tokens: int
    waiting: int  # length of the queue with it


@at("scheduler", "engine-to-sched")
class RequestAborted(NamedTuple):
    """A request was taken back; its blocks are free at once."""

    request: str
    status: str  # what it was until now


@at("block-manager")
class PrefixCacheReset(NamedTuple):
    """All hashes were dropped (`done`), or nothing changed."""

    done: bool
    dropped: int


@at("block-manager", "sched-to-block")
class PrefixLookedUp(NamedTuple):
    """The prefix of a waiting request was looked for in the cache."""

    request: str
    num_tokens: int  # looked for
    hit_tokens: int
    preempted: bool  # it ran before and lost its blocks
    hit_blocks: tuple[int, ...]


@at("block-manager", "block-to-sched")
class BlocksHit(NamedTuple):
    """Cached blocks were given to a request, which shares them now."""

    request: str
    blocks: tuple[int, ...]
    taken_from_free: int  # how many of them nobody held
    uncomputed: tuple[int, ...]  # those of them whose KV nobody wrote


@at("block-manager")
class BlockEvicted(NamedTuple):
    """A free block lost its content's hash, because it is given to somebody else."""

    block: int
    hash: str
    request: str  # it is given to


@at("block-manager", "block-to-sched")
class BlocksAllocated(NamedTuple):
    """Blocks were taken from the head of the free queue for a request."""

    request: str
    blocks: tuple[int, ...]


@at("block-manager", "block-to-sched")
class AllocationFailed(NamedTuple):
    """The blocks that a request needs cannot be had now."""

    request: str


@at("block-manager")
class BlocksCached(NamedTuple):
    """Full blocks of a request were entered in the prefix cache."""

    request: str
    first_index: int  # logical index of the first of them in the request's block table
    parent: str  # hash of the block before it, "" at the start
    blocks: tuple[int, ...]
    hashes: tuple[str, ...]


@at("block-manager")
class BlocksUncached(NamedTuple):
    """Hashes were dropped, because the content will not be computed."""

    request: str
    blocks: tuple[int, ...]


@at("block-manager")
class BlocksLeftUncomputed(NamedTuple):
    """Hashes were kept although the content will not be computed (`cache_uncomputed_blocks`)."""

    request: str  # the victim, whose tokens of this step were taken back
    blocks: tuple[int, ...]


@at("block-manager", "sched-to-block")
class BlocksFreed(NamedTuple):
    """A request let go of its blocks, last to first; `returned` of them are nobody's now."""

    request: str
    blocks: tuple[int, ...]
    returned: tuple[int, ...]


@at("scheduler")
class RequestScheduled(NamedTuple):
    """A request got tokens of this step's budget."""

    request: str
    kind: str  # "new", "resumed" or "running"
    num_tokens: int
    num_computed_tokens: int  # before this step
    num_known_tokens: int  # prompt and output so far
    budget_left: int  # after it


@at("scheduler")
class DraftsScheduled(NamedTuple):
    """Drafts are the last of the tokens that a request got; what was cut of them is lost."""

    request: str
    tokens: tuple[int, ...]  # -1: padding
    cut: int  # drafts that did not get in


@at("scheduler")
class DraftsDropped(NamedTuple):
    """A preempted request lost its drafts; it will resume without."""

    request: str
    num_drafts: int


@at("scheduler")
class DraftsSettled(NamedTuple):
    """The model has judged a request's drafts: as many tokens as it rejected count no more.

    They counted as computed since they were scheduled. Their blocks stay with the request.
    """

    request: str
    num_drafts: int
    num_accepted: int
    num_computed_tokens: int  # after it


@at("scheduler")
class RequestPassedOver(NamedTuple):
    """A running request got nothing in this step.

    Where the reason is its own length it is the only one. Where it is the budget or a preemption,
    all that run after it get nothing either.
    """

    request: str
    behind: int  # how many get nothing after it for the same reason


@at("scheduler")
class RequestPreempted(NamedTuple):
    """A running request lost its blocks and waits again, ahead of those that never ran.

    (Under the priority policy: where its priority says.) What of its content is still cached when
    it is resumed is hit; the rest is computed again.
    """

    request: str
    by: str  # the request that needed blocks; "" where an abort or a reset was the cause
    needs: int  # blocks that this request needed, 0 where none did
    free: int  # blocks that were free then
    num_computed_tokens: int  # the victim had


@at("scheduler")
class AdmissionStopped(NamedTuple):
    """The head of the waiting queue was not admitted, so nobody behind it is."""

    request: str
    waiting: int


@at("scheduler", "sched-to-runner")
class BatchScheduled(NamedTuple):
    """The step's decisions go to the runner."""

    num_requests: int
    prefill_tokens: int
    decode_tokens: int
    max_num_batched_tokens: int
    num_common_prefix_blocks: int
    finished: tuple[str, ...]  # ids the runner may forget


@at("gpu-runner", "block-to-runner")
class BlockTablesUpdated(NamedTuple):
    """The runner took over the block ids of this step."""

    requests: tuple[str, ...]
    new_blocks: int


@at("gpu-runner")
class InputsPrepared(NamedTuple):
    """The flattened batch: one row a token, requests one after the other."""

    requests: tuple[str, ...]
    query_start_loc: tuple[int, ...]  # first row of each request, and the end
    seq_lens: tuple[int, ...]  # tokens with KV of each request once this step is done
    input_ids: tuple[int, ...]
    positions: tuple[int, ...]
    slot_mapping: tuple[int, ...]  # block * block_size + offset, where each row's KV goes


@at("cuda-graph", "runner-to-graph")
class StepDispatched(NamedTuple):
    """How the forward runs: replay of a captured graph, or eagerly (`NONE`)."""

    mode: str
    num_tokens: int
    num_padded_tokens: int


@at("cuda-graph")
class GraphCaptured(NamedTuple):
    """A graph of this engine's model was captured; or (`shared`) another engine had done so.

    The operations are listed by layer and module, as `engine/cuda_graph/operations.py` says.
    """

    mode: str  # FULL, or PIECEWISE: attention runs between its pieces
    size: int  # rows
    backend: str
    pieces: int
    shared: bool
    recorded: int  # operations of the forward
    replayed: int  # of these, operations that a replay runs
    folded: int  # on constants alone: computed once
    views: int  # nothing to run
    num_bytes: int  # of static buffers; all graphs of a model have them in one memory
    eager_us: float  # a forward of this size, right after the capture
    replay_us: float  # the same by replay
    max_difference: float  # of a logit between the two; 0: equal to the bit
    buffer_names: tuple[str, ...]
    buffer_holds: tuple[str, ...]  # dtype and shape of each
    buffer_addresses: tuple[str, ...]
    first_layers: tuple[int, ...]  # -1 outside of the layers
    last_layers: tuple[int, ...]
    kinds: tuple[str, ...]
    operations: tuple[str, ...]
    results: tuple[str, ...]  # dtype and shape of what each operation gives


@at("cuda-graph")
class GraphReplayed(NamedTuple):
    """A captured graph ran instead of the decoder's modules.

    In a full graph, rows to spare write to block 0; between pieces, attention has none.
    """

    mode: str
    num_tokens: int  # asked for
    num_padded_tokens: int  # the size taken
    pieces: int
    operations: int


@at("gpu-runner")
class ForwardRun(NamedTuple):
    """The model ran over the batch."""

    num_tokens: int
    num_requests: int
    num_layers: int


@at("physical-vram", "runner-to-vram")
class WeightsRead(NamedTuple):
    """The forward read the weights once (derived: the bytes they occupy)."""

    num_bytes: int


@at("gpu-runner")
class ModulesTimed(NamedTuple):
    """Where the forward's time went, by kind of module: measured, children not counted twice.

    A replay calls no module: its calls are those that were recorded.
    """

    kinds: tuple[str, ...]
    calls: tuple[int, ...]
    durations_us: tuple[float, ...]


@at("paged-attn", "runner-to-kernel")
class AttentionRun(NamedTuple):
    """PagedAttention ran in every layer; its time is the sum over the layers."""

    backend: str
    num_layers: int
    num_tokens: int


@at("physical-vram", "kernel-to-vram")
class KVWritten(NamedTuple):
    """K and V of the step's tokens went to their slots (derived: tokens times bytes a token)."""

    num_tokens: int
    num_bytes: int


@at("physical-vram", "kernel-to-vram")
class PagesRead(NamedTuple):
    """The blocks that attention read for a request (derived from its block table), each layer."""

    request: str
    blocks: tuple[int, ...]
    num_tokens: int  # of context in these blocks
    num_bytes: int  # over all layers, each page once a KV head


@at("shared-gqa", "kernel-to-gqa")
class HeadsGrouped(NamedTuple):
    """Query heads that share a KV head (derived from the model's shape)."""

    num_attention_heads: int
    num_kv_heads: int
    kv_bytes_per_token: int  # all layers, K and V


@at("gpu-runner")
class DraftsVerified(NamedTuple):
    """The drafts of a request were compared with what the model chooses in their places.

    The first `num_accepted` are tokens of the request now; K and V of the others stand in slots
    where it has no token. Behind the first that is rejected none is judged, so that there are
    probabilities up to that one. They have four digits.
    """

    request: str
    drafts: tuple[int, ...]  # -1: padding
    texts: tuple[str, ...]  # of each draft by itself
    position: int  # of the first
    num_accepted: int
    probabilities: tuple[float, ...]  # the model's own, of those judged
    drawn_from: tuple[float, ...]  # with which chance each was accepted; () if greedy


@at("gpu-runner")
class TokenSampled(NamedTuple):
    """A token was chosen from the logits of one of a request's last rows.

    The candidates are the tokens most probable to the model, best first, the chosen one, and the
    draft for this place if there was one. Probabilities have four digits.
    """

    request: str
    token: int
    greedy: bool
    candidates: tuple[int, ...]
    texts: tuple[str, ...]  # of each candidate by itself
    probabilities: tuple[float, ...]  # the model's own
    drawn_from: tuple[float, ...]  # what it was drawn from, 0: forbidden; () if greedy


@at("gpu-runner")
class DraftsProposed(NamedTuple):
    """Tokens that may come next were copied from where a request's last tokens stood before."""

    request: str
    drafts: tuple[int, ...]
    texts: tuple[str, ...]  # of each draft by itself
    position: int  # of the first
    matched_at: int  # position of the first of the tokens that are the same
    num_matched: int  # how many of the request's last tokens stand there too


@at("gpu-runner", "runner-to-sched")
class TokensReturned(NamedTuple):
    """The step's tokens go back to the scheduler."""

    num_tokens: int


@at("scheduler")
class TokenAppended(NamedTuple):
    """The scheduler added a token to its request."""

    request: str
    token: int
    num_tokens: int  # known now


@at("scheduler")
class TokenDropped(NamedTuple):
    """A sampled token came too late: its request had ended, or (with a reason) its batch is void.

    A request ends before its token comes where it is aborted, or where the next step was scheduled
    already when its last token turned out to end it.
    """

    request: str
    token: int


@at("scheduler")
class RequestFinished(NamedTuple):
    """A request ended; its seat is free, its blocks follow."""

    request: str
    finish_reason: str
    num_output_tokens: int


@at("scheduler", "sched-to-engine")
class OutputsReturned(NamedTuple):
    """The step's outcome goes to the front end."""

    num_requests: int
    num_finished: int


@at("async-engine", "engine-to-client")
class TextEmitted(NamedTuple):
    """Text went out to the client: nothing of it is ever taken back."""

    request: str
    text: str
    token: int
    output_index: int  # of the token in the request's output


@at("async-engine", "engine-to-client")
class RequestCompleted(NamedTuple):
    """The client was told that its request ended."""

    request: str
    finish_reason: str


@at("async-engine")
class StatsLogged(NamedTuple):
    """The periodic line: what the engine did since the one before, and how it stands."""

    seconds: float  # that the throughputs are over
    prompt_throughput: float  # computed prompt tokens a second, of requests with a first token
    generation_throughput: float  # tokens a second
    running: int
    waiting: int
    preemptions: int
    kv_cache_usage: float  # from 0 to 1
    prefix_cache_hit_rate: float  # of the latest 1,000 look-ups, from 0 to 1


@at("async-engine")
class SpecDecodingLogged(NamedTuple):
    """The periodic line's second half, where drafts were verified: what they were worth."""

    seconds: float  # that the throughputs are over
    num_drafts: int  # requests that had some, once a step
    num_draft_tokens: int
    num_accepted_tokens: int
    accepted_per_pos: tuple[int, ...]  # by place in the draft


@at("block-manager")
class IntegrityChecked(NamedTuple):
    """All rules of `engine/integrity.py` were checked, between two phases.

    At most `MOST_VIOLATIONS` of the violations are listed, field by field in one order.
    """

    before: str  # the phase that is next
    rules: tuple[str, ...]
    checked: tuple[int, ...]  # how much was looked at under each rule
    num_violations: int
    broken: tuple[str, ...]  # the rule of each violation
    messages: tuple[str, ...]
    blocks: tuple[int, ...]  # that it is about, or -1
    requests: tuple[str, ...]  # that it is about, or ""


@at("physical-vram")
class KVCacheCompared(NamedTuple):
    """A request was run again with K and V in fp32: what rounding made of its cache and its text.

    Errors are relative, |difference| / |fp32| by Euclidean norms, one for each layer.
    """

    request: str
    dtype: str  # of the pool
    weights: str  # dtype of the weights that it ran with; fp32 is compared with, whatever it is
    num_tokens: int  # its first ones, of which the pool has K and V; the errors are of them
    key_errors: tuple[float, ...]
    value_errors: tuple[float, ...]
    key_rounding: tuple[float, ...]  # of fp32's own K in that dtype: no layer before adds to it
    value_rounding: tuple[float, ...]
    greedy: bool
    num_outputs: int  # tokens of its text that were compared
    differs_at: int  # the first of them that fp32 chooses otherwise, by the same draw; -1: none
    shown_from: int  # of its text, the token that the two texts below begin with
    written: tuple[str, ...]  # its text, token by token
    in_fp32: tuple[str, ...]


@at("async-engine")
class EngineFailed(NamedTuple):
    """A phase raised; the engine stopped and keeps its log."""

    message: str


Facts = (
    MemorySized
    | RequestSubmitted
    | RequestRefused
    | RequestArrived
    | RequestAborted
    | PrefixCacheReset
    | PrefixLookedUp
    | BlocksHit
    | BlockEvicted
    | BlocksAllocated
    | AllocationFailed
    | BlocksCached
    | BlocksUncached
    | BlocksLeftUncomputed
    | BlocksFreed
    | RequestScheduled
    | DraftsScheduled
    | DraftsDropped
    | DraftsSettled
    | RequestPassedOver
    | RequestPreempted
    | AdmissionStopped
    | BatchScheduled
    | BlockTablesUpdated
    | InputsPrepared
    | StepDispatched
    | GraphCaptured
    | GraphReplayed
    | ForwardRun
    | WeightsRead
    | ModulesTimed
    | AttentionRun
    | KVWritten
    | PagesRead
    | HeadsGrouped
    | DraftsVerified
    | TokenSampled
    | DraftsProposed
    | TokensReturned
    | TokenAppended
    | TokenDropped
    | RequestFinished
    | OutputsReturned
    | TextEmitted
    | RequestCompleted
    | StatsLogged
    | SpecDecodingLogged
    | IntegrityChecked
    | KVCacheCompared
    | EngineFailed
)


# --- records -----------------------------------------------------------------------------------


class Event(NamedTuple):
    """Something that happened."""

    seq: int
    step: int
    phase: Phase
    facts: Facts
    reason: Reason | None
    duration_us: float | None
    t_us: int  # since the log began


class Patch(NamedTuple):
    """What changed by the end of a phase: a JSON Merge Patch (RFC 7386) on the state before."""

    seq: int
    step: int
    phase: Phase
    changes: dict[str, Any]
    duration_us: float | None  # of the phase, the log's own work included
    t_us: int


Record = Event | Patch


def snake_case(name: str) -> str:
    """`PrefixLookedUp` -> `prefix_looked_up`: the wire's name of a class of this file."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


FACTS_BY_TYPE: dict[str, type[Any]] = {snake_case(cls.__name__): cls for cls in get_args(Facts)}
REASONS_BY_CODE: dict[str, type[Any]] = {snake_case(cls.__name__): cls for cls in get_args(Reason)}
TYPE_OF_FACTS: dict[type[Any], str] = {cls: name for name, cls in FACTS_BY_TYPE.items()}
CODE_OF_REASON: dict[type[Any], str] = {cls: code for code, cls in REASONS_BY_CODE.items()}
