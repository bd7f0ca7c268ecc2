"""Which rows of which step a trace is of, read from the log, and whether their pages still stand.

Part of the box `paged-attn`; only looks on. A step's tokens, positions and slots are in
`inputs_prepared`, the pages of each request in `pages_read`. A slot that a later step wrote to has
lost what the earlier one read there, and the log tells that too: nothing else writes to a block
that a request reads (captures and padding rows write to block 0, which is nobody's).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from engine.events import InputsPrepared, PagesRead
from engine.kernel_trace.errors import KernelTraceError
from engine.records import Event, Record


class TracedRows(NamedTuple):
    """One request's rows in one step that has run."""

    request: str
    step: int
    input_ids: tuple[int, ...]
    positions: tuple[int, ...]
    slots: tuple[int, ...]  # where each row's K and V went: block * block_size + offset
    blocks: tuple[int, ...]  # its block table, as far as it has tokens
    seq_len: int  # tokens of context, these rows among them
    num_scheduled: int  # rows that the step had of the request; these may be the last of them
    num_decodes: int  # requests with one row in the step
    longest_decode: int  # tokens of context of the longest of them

    def last(self, count: int) -> TracedRows:
        """The last `count` of these rows, or all."""
        return self._replace(
            input_ids=self.input_ids[-count:],
            positions=self.positions[-count:],
            slots=self.slots[-count:],
        )


def find_rows(
    records: Sequence[Record], block_size: int, request: str, step: int | None = None
) -> TracedRows:
    """The rows of `request` in `step`, or in the last step that computed some of it.

    Raises KernelTraceError where it has none there, or where what they read is gone.
    """
    ran: dict[int, list[str]] = {}  # steps whose attention has run: the requests in them
    writers: dict[int, int] = {}  # slot -> the last step that wrote to it
    pages: dict[str, PagesRead] = {}  # of the step at hand, whose events are met last one first
    for record in reversed(records):
        match record:
            case Event(facts=PagesRead() as read):
                pages[read.request] = read
            case Event(facts=InputsPrepared() as inputs) if pages:
                ran[record.step] = list(inputs.requests)
                if request in pages and step in (None, record.step):
                    rows = rows_of(inputs, pages[request], record.step, block_size)
                    check_unchanged(rows, writers, block_size)
                    return rows
                for slot in inputs.slot_mapping:
                    writers.setdefault(slot, record.step)
                pages = {}
    raise missing(request, step, ran)


def rows_of(inputs: InputsPrepared, pages: PagesRead, step: int, block_size: int) -> TracedRows:
    """One request's part of the batch."""
    i = inputs.requests.index(pages.request)
    seq_len = inputs.seq_lens[i]
    rows = slice(inputs.query_start_loc[i], inputs.query_start_loc[i + 1])
    decodes = [
        length
        for length, (start, end) in zip(
            inputs.seq_lens, pairwise(inputs.query_start_loc), strict=True
        )
        if end - start == 1
    ]
    return TracedRows(
        request=pages.request,
        step=step,
        input_ids=inputs.input_ids[rows],
        positions=inputs.positions[rows],
        slots=inputs.slot_mapping[rows],
        blocks=pages.blocks[: -(-seq_len // block_size)],
        seq_len=seq_len,
        num_scheduled=rows.stop - rows.start,
        num_decodes=len(decodes),
        longest_decode=max(decodes, default=0),
    )


def check_unchanged(rows: TracedRows, writers: dict[int, int], block_size: int) -> None:
    """Raise KernelTraceError where a later step wrote to a slot that these rows read."""
    for position in range(rows.seq_len):
        block = rows.blocks[position // block_size]
        writer = writers.get(block * block_size + position % block_size)
        if writer is not None:
            raise KernelTraceError(
                f"the pages that {rows.request} read in step {rows.step} have changed since: block "
                f"{block} was written to again in step {writer}; trace a step whose pages stand",
                "pages_changed",
                "step",
            )


def missing(request: str, step: int | None, ran: dict[int, list[str]]) -> KernelTraceError:
    """Why there are no such rows."""
    if not ran:
        return KernelTraceError(
            "no forward has run yet, so attention has read nothing; step the engine past the phase "
            "execute first",
            "nothing_run",
        )
    if step is not None and step not in ran:
        return KernelTraceError(
            f"the log has no forward of step {step}: it has not run yet, or had nothing to run, or "
            "is too long ago",
            "not_found",
            "step",
        )
    if step is not None and any(request in requests for requests in ran.values()):
        names = ", ".join(ran[step][:8])
        return KernelTraceError(
            f"{request} was not in the batch of step {step}; in it: {names}", "not_found", "request"
        )
    return KernelTraceError(
        f"no forward in the log has computed anything of {request!r:.60}", "not_found", "request"
    )
