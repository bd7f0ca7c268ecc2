"""A live engine between two steps, as a `SavedState` and back.

No box of its own, and no counterpart in vLLM. What follows from something else is not saved: a
reference count is the number of block tables, what the runner knows of a request is what the
scheduler has of it, a seed's next number is the number of tokens. So a file can contradict itself
in few ways, and `engine/integrity.py` has the last word on what was made of it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from engine.config import EngineConfig, SamplingParams, describe
from engine.core import EngineCore
from engine.events import MomentRestored
from engine.input_processor import check_logit_bias
from engine.integrity import check_integrity
from engine.kv_cache_manager import update_block_hashes
from engine.moment import (
    Moment,
    MomentError,
    SavedArena,
    SavedContent,
    SavedRequest,
    SavedState,
    SavedText,
    check_identity,
    check_size,
    identity_of,
)
from engine.output_processor import OutputProcessor, RequestState, RequestStream
from engine.outputs import NewRequestData, ScheduledRequest, TokenLogprobs
from engine.request import FinishReason, Request, RequestStatus
from engine.trace_header import package_versions

if TYPE_CHECKING:
    from torch import Tensor

    from engine.model_loader import LoadedModel

CHILD = "{}_{}"  # the id of one of n sequences
# What an engine may begin with, so that it can be saved again: half of what a file holds.
MOST_COUNTED = 2**52
MOST_NAMED = 5 * 10**8


# -- from an engine -------------------------------------------------------------------------------


def take_moment(
    core: EngineCore, outputs: OutputProcessor, model: LoadedModel, next_id: int
) -> Moment:
    """The engine as it stands between two steps; `MomentError` where that is too much for a file.

    Only the blocks that somebody holds or that are cached have content.
    """
    assert core.between_steps and core.config.max_model_len is not None
    scheduler, manager = core.scheduler, core.scheduler.kv_cache_manager
    pool = manager.block_pool
    blocks = blocks_with_content(pool.blocks[1:])
    per_block = core.runner.pool_bytes() // len(pool.blocks)
    check_size(
        len(blocks) * per_block,
        f"the {len(blocks):,} blocks that are held or cached have",
        "reset the prefix cache, or let requests end",
    )
    rated = core.runner.rated_prompts()
    try:
        state = SavedState(
            model=identity_of(model),
            versions=package_versions(),
            trace_id=core.trace.header.trace_id,
            saved_at=time.time(),
            config=core.config.model_dump(mode="json"),
            step=core.step_index,
            next_id=next_id,
            requests=[
                saved_request(core, state, rated.get(key)) for key, state in outputs.states.items()
            ],
            finished=list(core.recorder.finished),
            arriving=list(core.arriving),
            waiting=[request.request_id for request in scheduler.waiting],
            running=[request.request_id for request in scheduler.running],
            finished_req_ids=list(scheduler.finished_req_ids),
            preempted_req_ids=list(scheduler.preempted_req_ids),
            counters=vars(scheduler.counters).copy(),
            free=[block.block_id for block in pool.free_block_queue],
            cached=[
                SavedContent(hash=block_hash.hex(), blocks=list(same))
                for block_hash, same in pool.cached.items()
            ],
            uncomputed=[block.block_id for block in pool.blocks if block.uncomputed],
            contiguous={
                name: SavedArena(starts=way.starts, line=list(way.line))
                for name, way in core.recorder.contiguous.ways.items()
            },
        )
    except (ValidationError, PydanticSerializationError) as error:
        raise MomentError(f"this state cannot be saved ({str(error)[:200]})") from error
    return Moment(state, core.runner.save_blocks(blocks))


def blocks_with_content(blocks: Iterable[Any]) -> list[int]:
    """Ids of the blocks whose K and V somebody may read."""
    return [b.block_id for b in blocks if b.ref_cnt or b.block_hash is not None]


def saved_request(
    core: EngineCore, state: RequestState, rated: Sequence[TokenLogprobs | None] | None
) -> SavedRequest:
    """All that has to be told of one request."""
    request, manager = state.request, core.scheduler.kv_cache_manager
    key, params = request.request_id, request.sampling_params
    finished = request.status is RequestStatus.FINISHED
    return SavedRequest(
        id=key,
        parent=request.parent or None,
        index=state.index,
        source=state.source,
        priority=request.priority,
        arrival_time=request.arrival_time,
        cache_salt=request.cache_salt,
        sampling=params.model_dump(mode="json", exclude={"seed"}, exclude_defaults=True),
        seed=params.seed,
        status=request.status.value,
        finish_reason=None if request.finish_reason is None else request.finish_reason.value,
        stop_reason=request.stop_reason,
        prompt=state.stream.prompt,
        prompt_token_ids=request.all_token_ids[: request.num_prompt_tokens],
        output_token_ids=request.output_token_ids,
        prompt_pieces=state.prompt_pieces,
        output_pieces=state.output_pieces,
        num_computed_tokens=request.num_computed_tokens,
        num_preemptions=request.num_preemptions,
        hit_tokens=request.hit_tokens,
        num_cached_blocks=manager.num_cached_block.get(key, 0),
        is_prefill_chunk=request.is_prefill_chunk,
        spec_token_ids=request.spec_token_ids,
        block_table=[block.block_id for block in manager.req_to_blocks.get(key, ())],
        prompt_logprobs=None if rated is None else [one and plain(one) for one in rated],
        text=None if finished else SavedText(**state.detokenizer.save()),
    )


def plain(one: TokenLogprobs) -> tuple[int, float, int, list[tuple[int, float]]]:
    """As the file has it."""
    return one.token_id, one.logprob, one.rank, list(one.top)


# -- to an engine ---------------------------------------------------------------------------------


def config_of(moment: Moment, model: LoadedModel) -> EngineConfig:
    """The settings that the moment's engine had; `MomentError` where it is not this model's."""
    saved = moment.state
    check_identity(saved.model, model)
    config = EngineConfig.parse(saved.config)
    held = {block for one in saved.requests for block in one.block_table}
    # Before a pool is made: a large one must be a large file.
    expect(
        len(saved.free) + len(held) + 1 == config.num_gpu_blocks,
        f"{len(saved.free)} free and {len(held)} held blocks are not a pool of "
        f"{config.num_gpu_blocks}",
    )
    return config


def restore_moment(
    core: EngineCore, outputs: OutputProcessor, model: LoadedModel, moment: Moment
) -> MomentRestored:
    """Make an engine that has done nothing yet what the saved one was.

    `MomentError` where that cannot be; the engine is of no use then.
    """
    restore = Restore(core, outputs, model, moment)
    try:
        return restore.run()
    except ValidationError as error:
        raise MomentError(f"{describe(error)}; save the moment again") from None
    except (ValueError, LookupError, AssertionError) as error:
        if isinstance(error, MomentError):
            raise
        raise contradiction(str(error)) from None


def contradiction(what: str) -> MomentError:
    """The file says what cannot be."""
    return MomentError(
        f"the moment contradicts itself: {what:.300}; it was changed since it was saved: take "
        "another copy of it"
    )


def expect(holds: bool, what: str) -> None:
    """`MomentError` where a rule of the file does not hold."""
    if not holds:
        raise contradiction(what)


class Restore:
    """One engine on its way to what another one was."""

    def __init__(
        self, core: EngineCore, outputs: OutputProcessor, model: LoadedModel, moment: Moment
    ):
        self.core, self.outputs, self.model = core, outputs, model
        self.moment, self.saved = moment, moment.state
        self.requests: dict[str, Request] = {}
        self.by_id = {one.id: one for one in self.saved.requests}

    def run(self) -> MomentRestored:
        """All of it, from what depends on nothing to what depends on all."""
        saved = self.saved
        self.check_counts()
        self.check_places()
        for one in saved.requests:
            self.requests[one.id] = self.request_of(one)
        self.restore_blocks()
        self.restore_queues()
        self.restore_arenas()
        self.restore_runner()
        self.restore_texts()
        self.core.restored(saved.step, {key: self.requests[key] for key in saved.finished})
        report = check_integrity(self.core)
        if report.violations:
            raise contradiction(report.violations[0].message)
        return self.facts()

    # -- requests -------------------------------------------------------------------------------

    def check_counts(self) -> None:
        """No engine has counted so far that it could not be saved any more."""
        saved = self.saved
        counts = {"step": saved.step} | {f"counters.{k}": v for k, v in saved.counters.items()}
        for one in saved.requests:
            counts[f"requests.{one.id}.num_preemptions"] = one.num_preemptions
        for name, count in counts.items():
            expect(count <= MOST_COUNTED, f"{name} {count} is more than any engine has counted")
        expect(saved.next_id <= MOST_NAMED, f"next_id {saved.next_id} is more than an engine names")

    def check_places(self) -> None:
        """Each request is in one place, the one that its status names."""
        saved = self.saved
        places = {
            "finished": saved.finished,
            "submitted": saved.arriving,
            "waiting": saved.waiting,
            "preempted": saved.waiting,
            "running": saved.running,
        }
        named = Counter([*saved.finished, *saved.arriving, *saved.waiting, *saved.running])
        expect(len(self.by_id) == len(saved.requests), "two requests have the same id")
        expect(named == Counter(self.by_id.keys()), "a request is in no queue, or in two")
        members = {status: set(keys) for status, keys in places.items()}
        for one in saved.requests:
            where = f"requests.{one.id}"
            expect(one.id in members[one.status], f"{where}.status is not that of its queue")
            number = int(one.id.rpartition("r")[2])
            expect(number < saved.next_id, f"next_id {saved.next_id} comes before {one.id}")
        expect(len(saved.running) <= self.core.config.max_num_seqs, "more requests run than seats")

    def request_of(self, one: SavedRequest) -> Request:
        """The request, once what it says of itself is possible."""
        where, config = f"requests.{one.id}", self.core.config
        params = SamplingParams.model_validate(one.sampling).model_copy(update={"seed": one.seed})
        expect(params.n == 1 and "" not in params.stop, f"{where}.sampling has n or an empty stop")
        check_logit_bias(params, self.model.vocab_size)
        tokens = [*one.prompt_token_ids, *one.output_token_ids]
        texts = one.text.window if one.text else []
        largest = max(*tokens, *one.spec_token_ids, *texts, 0)
        expect(largest < self.model.vocab_size, f"{where} has a token that the model does not have")
        finished = one.status == "finished"
        longest = (config.max_model_len or 0) - (0 if finished else 1)
        expect(len(tokens) <= longest, f"{where} has more tokens than max_model_len allows")
        expect(len(one.prompt_pieces) == len(one.prompt_token_ids), f"{where}.prompt_pieces")
        expect(len(one.output_pieces) <= len(one.output_token_ids), f"{where}.output_pieces")
        expect(finished == (one.text is None), f"{where}.text is of unfinished requests alone")
        expect(finished == (one.finish_reason is not None), f"{where}.finish_reason")
        expect(
            len(one.spec_token_ids) <= config.num_speculative_tokens,
            f"{where}.spec_token_ids has more drafts than a step",
        )
        # One that had no token to compute would hold its seat for ever.
        left = len(tokens) - one.num_computed_tokens
        possible = finished or (left > 0 if one.status == "running" else left == len(tokens))
        expect(possible, f"{where}.num_computed_tokens is more than it can be")
        if one.parent is not None:
            expect(one.id == CHILD.format(one.index, one.parent), f"{where}.parent")
        request = Request(
            one.id,
            one.prompt_token_ids,
            params,
            self.model.eos_token_ids,
            one.priority,
            one.arrival_time,
            parent=one.parent or "",
            cache_salt=one.cache_salt,
        )
        for token in one.output_token_ids:
            request.append_output_token(token)
        request.status = RequestStatus(one.status)
        request.finish_reason = one.finish_reason and FinishReason(one.finish_reason)
        request.stop_reason = one.stop_reason
        request.num_computed_tokens = one.num_computed_tokens
        request.num_preemptions = one.num_preemptions
        request.hit_tokens = one.hit_tokens
        request.is_prefill_chunk = one.is_prefill_chunk
        request.spec_token_ids = list(one.spec_token_ids)
        return request

    # -- the scheduler's side -------------------------------------------------------------------

    def restore_blocks(self) -> None:
        """Pool, tables, content."""
        saved, manager = self.saved, self.core.scheduler.kv_cache_manager
        pool, number = manager.block_pool, self.core.config.num_gpu_blocks
        tables = {one.id: one.block_table for one in saved.requests if one.block_table}
        held = Counter(block for table in tables.values() for block in table)
        cached = {bytes.fromhex(content.hash): content.blocks for content in saved.cached}
        entered = [block for blocks in cached.values() for block in blocks]
        expect(len(cached) == len(saved.cached), "cached: a hash is there twice")
        expect(len(entered) == len(set(entered)), "cached: a block has two contents")
        expect(set(saved.uncomputed) <= set(entered), "uncomputed: a block without content")
        expect(max([*held, *entered, 0]) < number, f"a block is none of the pool's {number}")
        rest = set(range(1, number)) - held.keys()
        in_order = len(saved.free) == len(rest) and set(saved.free) == rest
        expect(in_order, "free: not all blocks that nobody holds, each once")
        pool.restore(saved.free, cached, saved.uncomputed, held)
        for key, table in tables.items():
            manager.req_to_blocks[key] = [pool.blocks[block] for block in table]
        for one in saved.requests:
            if one.num_cached_blocks:
                manager.num_cached_block[one.id] = one.num_cached_blocks
                update_block_hashes(self.requests[one.id], manager.block_size)

    def restore_queues(self) -> None:
        """Queues, what the runner has yet to hear of, counters."""
        saved, scheduler = self.saved, self.core.scheduler
        for key in saved.arriving:
            self.core.arriving[key] = self.requests[key]
        for queue, keys in (
            (scheduler.waiting, saved.waiting),
            (scheduler.running, saved.running),
        ):
            for key in keys:
                queue.append(self.requests[key])
                scheduler.requests[key] = self.requests[key]
        scheduler.finished_req_ids[:] = saved.finished_req_ids
        scheduler.preempted_req_ids[:] = saved.preempted_req_ids
        counters = vars(scheduler.counters)
        expect(counters.keys() == saved.counters.keys(), "counters: not those of an engine")
        counters.update(saved.counters)

    def restore_arenas(self) -> None:
        """What the contiguous ways hold beside the pool."""
        contiguous, arenas = self.core.recorder.contiguous, self.saved.contiguous
        expect(arenas.keys() == contiguous.ways.keys(), "contiguous: not the ways of an engine")
        contiguous.restore(
            [one for one in self.requests.values() if one.status is not RequestStatus.FINISHED],
            {name: arena.starts for name, arena in arenas.items()},
            {name: arena.line for name, arena in arenas.items()},
        )

    # -- the runner's, and the clients' ---------------------------------------------------------

    def restore_runner(self) -> None:
        """K and V, and the requests that run. Those that ended it would forget next anyway."""
        runner, pool = self.core.runner, self.core.scheduler.kv_cache_manager.block_pool
        blocks = blocks_with_content(pool.blocks[1:])
        runner.restore_blocks(blocks, self.moment.tensors)
        check_finite(self.moment.tensors, blocks)
        for key in self.saved.running:
            one, request = self.by_id[key], self.requests[key]
            data = NewRequestData(
                tuple(request.all_token_ids), request.num_prompt_tokens, request.sampling_params
            )
            item = ScheduledRequest(key, "resumed", 0, 0, tuple(one.block_table), (), data)
            rated = one.prompt_logprobs
            known = None if rated is None else [each and logprobs_of(each) for each in rated]
            asked = request.sampling_params.prompt_logprobs is not None
            due = asked and not request.num_output_tokens
            expect(due == (rated is not None), f"requests.{key}.prompt_logprobs")
            runner.restore_request(item, known)

    def restore_texts(self) -> None:
        """Where each text stands. Nobody reads the streams: the other engine had the clients."""
        streams: dict[str, RequestStream] = {}
        unfinished = Counter(
            one.parent or one.id for one in self.saved.requests if one.text is not None
        )
        for one in self.saved.requests:
            name, request = one.parent or one.id, self.requests[one.id]
            stream = streams.setdefault(
                name, RequestStream(name, one.prompt, one.prompt_token_ids, unfinished[name])
            )
            state = RequestState(
                request, one.source, stream, one.index, self.outputs.tokenizer, one.prompt_pieces
            )
            state.output_pieces = list(one.output_pieces)
            if one.text is not None:
                state.detokenizer.restore(**one.text.model_dump())
            self.outputs.restore_request(state)

    def facts(self) -> MomentRestored:
        """As the log has it."""
        saved, here = self.saved, package_versions()
        pool = self.core.scheduler.kv_cache_manager.block_pool
        unfinished = len(saved.requests) - len(saved.finished)
        return MomentRestored(
            trace=saved.trace_id,
            saved_at=saved.saved_at,
            num_requests=unfinished,
            num_finished=len(saved.finished),
            num_blocks=len(blocks_with_content(pool.blocks[1:])),
            num_bytes=self.moment.num_bytes,
            other_versions=tuple(
                f"{name} {saved.versions.get(name, 'missing')}, here {here.get(name, 'missing')}"
                for name in sorted({*saved.versions, *here})
                if saved.versions.get(name) != here.get(name)
            ),
        )


def check_finite(tensors: Mapping[str, Tensor], blocks: Sequence[int]) -> None:
    """`MomentError` where K or V ([2, blocks, ...]) has what no forward can take."""
    import torch

    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            continue
        finite = torch.isfinite(tensor.float() if tensor.itemsize == 1 else tensor)
        if finite.all():
            continue
        place = [int(i) for i in (~finite).nonzero()[0]]
        what, value = ("a key", "a value")[place[0]], float(tensor[tuple(place)])
        raise contradiction(
            f"{name}: {what} of block {blocks[place[1]]} is {value}, at {place}; no forward can "
            "take that"
        )


def logprobs_of(saved: tuple[int, float, int, list[tuple[int, float]]]) -> TokenLogprobs:
    """What `plain` made of it."""
    token, logprob, rank, top = saved
    return TokenLogprobs(token, logprob, rank, tuple((int(t), float(p)) for t, p in top))
