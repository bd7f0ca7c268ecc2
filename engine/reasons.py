"""Why a decision came out as it did: the reasons of the log's events.

A reason's class is its code, its fields are the numbers behind the decision: counts of tokens or
blocks as named. They are named tuples, since a running engine makes them by the thousand.

Adding a reason: one class here, one sentence on the page (`views/assets/words/reasons.js`).
"""

from __future__ import annotations

from typing import NamedTuple


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
