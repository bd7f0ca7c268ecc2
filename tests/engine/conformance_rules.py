"""The first place where two traces differ, with the rule of vLLM 0.26.0 that this place shows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

Path = tuple[str | int, ...]

_INPUT = "arrivals in list order, then aborts one by one, then actions, all before `schedule`"
_ALIAS = "a hash covers its block's tokens and, through its parent's hash, all before"
_COUNT = "what the step's other fields come to"

# By field, of a line or of what it holds; what decides comes before what follows from it.
RULES = {
    # what was done to the scheduler
    "step": "a step in which nothing comes and nothing is there is skipped; its number passes",
    "cycle": "a cycle schedules the next batch before it awaits the oldest one",
    "kind": (
        "`new` at first admission, `resumed` after a preemption, else `running`; of a line: input, "
        "schedule, update, and from idle two calls of schedule before the first update"
    ),
    "batch": "batches come back in the order in which they were scheduled; empty ones count",
    "added": _INPUT,
    "aborted": _INPUT,
    "aborted_before": _INPUT,
    "aborted_during": "an abort frees at once; the token sampled in that step is lost",
    "actions": _INPUT,
    "op": _INPUT,
    "ok": "a reset is refused while a block is held, unless it preempts the running requests",
    # schedule
    "preempted": (
        "who runs and finds no blocks preempts: under fcfs the last of the running, under priority "
        "the largest (priority, arrival time), the first of equals"
    ),
    "scheduled": (
        "running requests in running order, then waiting ones from the head, nobody overtaking it, "
        "while budget and seats last; nobody is admitted in a step of a preemption"
    ),
    "id": "running requests in running order, then waiting ones from the head of the queue",
    "num_tokens": (
        "the least of: known less computed tokens, long_prefill_token_threshold, the budget left, "
        "max_model_len - 1 less computed tokens; of an event: whole blocks"
    ),
    "num_computed": "counted when scheduled; a prefix hit counts; 0 after a preemption",
    "drafts": (
        "a request's drafts are wanted behind its known tokens and cut first; a new one that wants "
        "one token gets padding (-1) where all others of the step decode"
    ),
    "new_blocks": "as many as the tokens need beyond the blocks held, from the free queue's front",
    "blocks": "hits first, then the request's own; a table only grows at its end",
    "hit_tokens": "the longest cached prefix in whole blocks, of all known tokens but the last",
    "total_tokens": "the sum over `scheduled`",
    "notified_finished": "ids that ended since the last `schedule`; an empty step tells the last",
    "num_common_prefix_blocks": "leading blocks of the first running request that all holders hold",
    "running": "in order of admission; a resumed request goes to the end",
    "waiting": "preempted ones at the front; under priority by (priority, arrival time, id)",
    "free_scheduled": "blocks in the free queue, those with cached content included",
    "placeholders": "one more for each token that a batch in flight will deliver",
    "discard": "a reset makes void what is in flight of the requests that it preempts",
    "in_flight": "the queue of batches is filled before the oldest is awaited; it holds two",
    # update
    "sampled": "a request samples once all its known tokens are computed, not in mid-prefill",
    "dropped": "a token is not used where its request has ended, or a reset made it void",
    "finished": (
        "below min_tokens nothing stops; then EOS, stop tokens, and length at max_model_len or "
        "max_tokens; in scheduling order"
    ),
    "computed": "drafts count when scheduled; the update takes off the rejected ones",
    "proposed": "new drafts after an update; who is passed over keeps them, a victim does not",
    # the pool
    "hashed": (
        "a full block is cached when its tokens are scheduled, also of a victim that loses them in "
        "this step; a generated token counts once it is scheduled itself"
    ),
    "unhashed": "taking a block from the free queue evicts its content; a reset drops all",
    "free": "blocks in the free queue, those with cached content included",
    "free_head": (
        "a table is freed from its last block; unhashed blocks go to the front of the queue, "
        "hashed ones to its back"
    ),
    "num_running": _COUNT,
    "num_waiting": _COUNT,
    "prefix_queries": "each try to admit counts, admitted or not; preempted requests apart",
    "events": "one BlockStored an allocation that fills blocks, one BlockRemoved a block evicted",
    "type": "one BlockStored an allocation that fills blocks, one BlockRemoved a block evicted",
    "parent": _ALIAS,
    "hashes": _ALIAS,
    # the first and the last line
    "config": "what a workload leaves out has its default",
    "trace_schema": "the form of the trace",
    "workload": "the workload's name",
    "workload_sha256": "the digest of the file's bytes",
    "end": "the last line sums up",
    "steps": "lines between the first and the last",
    "lines": "lines between the first and the last",
    "requests": "what became of each request",
    "output_tokens": "what became of each request",
    "preemptions": "how often each request lost its blocks, those of a reset included",
    "reason": "stop, length or abort",
}
PLACES = {name: place for place, name in enumerate(RULES)}


def difference(recorded: list[Any], ours: list[Any]) -> str | None:
    """Where `ours` leaves what was recorded, in words; None where it does not.

    The first place is the cause; what follows is its consequence.
    """
    for number, (expected, got) in enumerate(zip(recorded, ours, strict=False), 1):
        for path, wanted, found in differences(expected, got):
            when = expected.get("step", expected.get("cycle", "none"))
            return (
                f"line {number}, step {when}, field {'.'.join(map(str, path))}: "
                f"expected {wanted!r}, got {found!r}\nrule: {rule_of(path)}"
            )
    return None if len(recorded) == len(ours) else f"{len(recorded)} lines, got {len(ours)}"


def differences(expected: Any, got: Any, path: Path = ()) -> Iterator[tuple[Path, Any, Any]]:
    """Each innermost place that differs, causes before consequences."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in sorted(expected.keys() | got.keys(), key=place_of):
            yield from differences(expected.get(key), got.get(key), (*path, key))
    elif isinstance(expected, list) and isinstance(got, list):
        for index, pair in enumerate(zip_longest(expected, got)):
            yield from differences(*pair, (*path, index))
    elif expected != got:
        yield path, expected, got


def place_of(key: str) -> tuple[int, str]:
    """Fields in the order of the rules; ids, which have none, by name."""
    return (PLACES.get(key, len(PLACES)), key)


def rule_of(path: Path) -> str:
    """The rule of the innermost field that has one."""
    return next(RULES[name] for name in reversed(path) if name in RULES)
