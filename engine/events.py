"""The vocabulary of the log: what can happen, to whom and on which arrow.

An event's class stands at a box of the map and, where it travelled, on an arrow (`@at`); its
fields are the facts. They are named tuples, since a running engine makes them by the thousand.
Sizes are counts of tokens or blocks as named, times are microseconds. `engine/reasons.py` has the
reasons that an event may come with, `engine/records.py` what the log makes of both.

Adding an event: one class here, one `trace.event(...)` where it happens, one sentence on the page;
and where it changes what the state has of blocks, requests, queues or counters, its effect there
(`views/assets/core/effects.js`), with which the page has the state of each event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar


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
    source: str  # "page", "http", "class:NAME", or "workload" in a comparison


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
    ahead: int  # how many of these are to be admitted before it


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
    ahead: int  # requests that wait and are to be admitted before it


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
    """A request was run again in fp32: what rounding made of its cache, its logits and its text.

    Errors are relative, |difference| / |fp32| by Euclidean norms; of K and V, one for each layer.
    """

    request: str
    dtype: str  # of the pool
    weights: str  # that it ran with: their quantization, or their dtype
    logits_error: float  # by these weights alone, with K and V in fp32; 0: they are those of fp32
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
class MomentRestored(NamedTuple):
    """The engine begins as another one stood between two steps; the log's base state has it."""

    trace: str  # id of the log that the moment was saved of
    saved_at: float  # seconds since the epoch
    num_requests: int  # unfinished ones
    num_finished: int  # that the state remembers
    num_blocks: int  # held or cached, with their K and V
    num_bytes: int  # of these
    other_versions: tuple[str, ...]  # packages whose version was another, each with both


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
    | MomentRestored
    | EngineFailed
)
