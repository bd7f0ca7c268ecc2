"""The reasons that lessons speak of, in the words of the page (`views/assets/words/reasons.js`)."""

from __future__ import annotations

from engine.reasons import (
    AboveLargestSize,
    BlockNotFull,
    BudgetSpent,
    EnforceEager,
    FirstMiss,
    LastRunning,
    LastTokenNeeded,
    ModeForAnyBatch,
    ModelLengthReached,
    NotUniformDecode,
    Reason,
    SeatsFull,
    UniformDecode,
)
from engine.records import CODE_OF_REASON


def reason_words(reason: Reason) -> str:
    """A clause that says the reason with its numbers; its code, where no words are known here."""
    match reason:
        case SeatsFull(running, seats):
            return f"{running} of {seats} seats are taken"
        case BudgetSpent(budget):
            return f"the step's {_are(budget, 'token')} spent"
        case ModelLengthReached(most):
            return f"the longest length, {_many(most, 'token')}, is reached"
        case FirstMiss(block, content):
            return f"its logical block {block} (content {content[:8]}) is not cached"
        case BlockNotFull(block, tokens):
            known = _many(tokens, "token")
            return f"its logical block {block} has {known}, and only full blocks hit"
        case LastTokenNeeded(limit):
            hits = _many(limit, "token")
            return f"at least one token must be computed, so at most {hits} may hit"
        case LastRunning(running):
            return f"the last of {running} running"
        case UniformDecode(1, rows):
            return f"its one request has {_rows(rows)}, as a full graph takes"
        case UniformDecode(requests, rows):
            return f"each of its {requests} requests has {_rows(rows)}, as a full graph takes"
        case NotUniformDecode(rows, requests, tokens):
            others = f"{requests} requests have {tokens} in all"
            if requests == 1:
                others = f"one request has {tokens}"
            return f"a full graph takes {_rows(rows)} of each request; {others}"
        case ModeForAnyBatch(mode):
            return f"cudagraph_mode is {mode}, for every batch"
        case AboveLargestSize(batch, largest):
            return f"{_are(batch, 'token')} more than the largest captured size, {largest}"
        case EnforceEager():
            return "the engine was told never to use a graph"
    return CODE_OF_REASON[type(reason)].replace("_", " ")


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def _are(count: int, word: str) -> str:
    return f"{_many(count, word)} {'is' if count == 1 else 'are'}"


def _rows(count: int) -> str:
    return "one row" if count == 1 else _many(count, "row")
