"""Runs the model over what the scheduler chose (map: GPU model runner).

Three phases of a step: `prepare_inputs` flattens the batch, `execute_model` computes and keeps
the logits, `sample_tokens` chooses. Counterpart in vLLM 0.26.0:
`vllm/v1/worker/gpu_model_runner.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import torch
from torch import Tensor

from engine.config import EngineConfig
from engine.cuda_graph import (
    CannotRecord,
    CapturedGraph,
    CapturedGraphs,
    CudagraphDispatcher,
    Dispatch,
    GraphKey,
    check_inductor,
)
from engine.detokenizer import TokenTexts
from engine.device import in_turn
from engine.events import (
    AttentionRun,
    BlockTablesUpdated,
    DraftsProposed,
    DraftsVerified,
    ForwardRun,
    GraphCaptured,
    GraphReplayed,
    HeadsGrouped,
    KVWritten,
    ModulesTimed,
    PagesRead,
    StepDispatched,
    TokenSampled,
    TokensReturned,
    WeightsRead,
)
from engine.forward import Forward, ModelInputs, context_of, run_eagerly
from engine.input_batch import CachedRequestState, PromptRows, SampledRows, make_batch
from engine.kv_cache import KVCache, KVCacheSpec, bits
from engine.model_loader import LoadedModel
from engine.model_loader.dtypes import kv_cache_dtype
from engine.module_timer import ModuleTimer
from engine.outputs import (
    ModelRunnerOutput,
    PromptLogprobs,
    ScheduledRequest,
    SchedulerOutput,
    TokenLogprobs,
)
from engine.paged_attention import PagedAttentionMetadata, check_pageable, choose_backend
from engine.rejection_sampler import verify
from engine.sampler import (
    Sampled,
    Sampler,
    SamplingRow,
    token_logprobs,
)
from engine.spec_decode.ngram_proposer import NgramProposer
from engine.trace import Changes, EventLog, State

NO_DRAFT = -1  # as padding among drafts
RANKED_AT_ONCE = 64  # rows of a prompt's logits: their copies stay small


class ModelRunner:
    """One engine's hold on the model: its requests, its KV cache, its step in progress.

    The weights are shared with every other engine of the process; the pool is its own.
    """

    @in_turn
    def __init__(self, model: LoadedModel, config: EngineConfig, trace: EventLog):
        check_pageable(model.model)
        self.model = model
        self.config = config
        self.trace = trace
        self.device = model.model.device
        spec = KVCacheSpec.of(model, config.block_size, kv_cache_dtype(model, config))
        attention_backend = choose_backend(model, config)
        self.kv_cache = KVCache(spec, config.num_gpu_blocks, self.device, attention_backend)
        check_inductor(config, self.device)
        self.graphs = CapturedGraphs.of(model, self.kv_cache, config.compilation_backend)
        self.dispatcher = CudagraphDispatcher.of(config)
        self.sampler = Sampler()
        self.proposer = NgramProposer.of(config)
        self.texts = TokenTexts(model.tokenizer)
        self.timer = ModuleTimer.of(model.model)
        self.requests: dict[str, CachedRequestState] = {}
        self._scheduled: tuple[ScheduledRequest, ...] = ()
        self._graphs_told: State = {}  # by mode and size, as the log has them
        self._changes: Changes = {}
        self._inputs: ModelInputs | None = None
        self._dispatch: Dispatch | None = None
        self._logits: Tensor | None = None
        self._sampled: tuple[SampledRows, ...] = ()
        self._prompt_rows: tuple[PromptRows, ...] = ()

    # -- phase prepare --------------------------------------------------------------------------

    @in_turn
    def prepare_inputs(self, output: SchedulerOutput) -> None:
        """Take over the scheduler's decisions and flatten the step's batch."""
        for request_id in output.finished_req_ids + output.preempted_req_ids:
            self.requests.pop(request_id, None)
        changed = [item.request_id for item in output.scheduled if self._update_state(item)]
        if changed:
            added = sum(len(item.new_block_ids) for item in output.scheduled)
            self.trace.event(BlockTablesUpdated(tuple(changed), added))
        self._build_inputs(output.scheduled)

    def _update_state(self, item: ScheduledRequest) -> bool:
        """Bring one request up to date; whether its block table changed."""
        if item.data is not None:
            state = CachedRequestState.of(item, item.data, self.config.seed)
            self.requests[item.request_id] = state
            return True
        self.requests[item.request_id].block_ids.extend(item.new_block_ids)
        return bool(item.new_block_ids)

    def _build_inputs(self, scheduled: tuple[ScheduledRequest, ...]) -> None:
        """Make the batch of `scheduled` the step in progress, and say how it will run."""
        began = time.perf_counter()
        self._scheduled, self._logits = scheduled, None
        self._inputs, self._sampled, self._prompt_rows = None, (), ()
        if not scheduled:
            return
        batch = make_batch(scheduled, self.requests, self.config.block_size)
        rows = batch.rows
        self._prompt_rows, self._sampled = batch.prompt_rows, batch.sampled
        self._inputs = ModelInputs(
            input_ids=self._tensor(rows.input_ids)[None],
            positions=self._tensor(rows.positions)[None],
            logits_to_keep=self._tensor(batch.logits_to_keep),
            metadata=PagedAttentionMetadata(
                query_start_loc=rows.query_start_loc,
                seq_lens=rows.seq_lens,
                block_tables=tuple(tuple(self.requests[r].block_ids) for r in rows.requests),
                slot_mapping=self._tensor(rows.slot_mapping),
                block_size=self.config.block_size,
            ),
        )
        self.trace.event(rows, duration_us=(time.perf_counter() - began) * 1e6)
        self._dispatch = self._dispatched(self._inputs)

    def _dispatched(self, inputs: ModelInputs) -> Dispatch:
        """The decision, logged."""
        decision = self.graphs.allowed(self.dispatcher.dispatch(inputs.metadata.query_lens))
        self.trace.event(
            StepDispatched(decision.mode, decision.num_tokens, decision.num_padded_tokens),
            reason=decision.reason,
        )
        return decision

    def _tensor(self, values: tuple[int, ...]) -> Tensor:
        return torch.as_tensor(values, dtype=torch.int64, device=self.device)

    # -- phase execute --------------------------------------------------------------------------

    @in_turn
    def execute_model(self) -> None:
        """Run the model over the batch; its logits wait for `sample_tokens`."""
        inputs = self._inputs
        if inputs is None:
            return
        captured = self._captured_graph(inputs)
        with torch.inference_mode():
            if captured is None:
                context = context_of(inputs, self.kv_cache, self.timer)
                forward = run_eagerly(self.model, inputs, context)
            else:
                forward = self._replay(captured, inputs)
        self._logits = forward.logits
        self._log_forward(inputs, forward)

    def _captured_graph(self, inputs: ModelInputs) -> CapturedGraph | None:
        """The graph that the step was dispatched to, captured now if it has never been."""
        assert self._dispatch is not None
        if self._dispatch.key is None:
            return None
        key = GraphKey(self._dispatch.mode, self._dispatch.key.num_tokens)
        captured = self.graphs.by_key.get(key)
        shared = captured is not None
        if captured is None:
            try:
                captured = self.graphs.capture(key, self.model, self.kv_cache)
            except CannotRecord:
                self._dispatch = self._dispatched(inputs)  # it knows now, and says why
                return None
        if str(key) not in self._graphs_told:
            facts = captured.facts(shared)
            self.trace.event(facts, duration_us=None if shared else captured.capture_us)
            self._graphs_told[str(key)] = record = graph_record(facts)
            self._changes.setdefault("graphs", {})[str(key)] = record
        return captured

    def _replay(self, captured: CapturedGraph, inputs: ModelInputs) -> Forward:
        graph = captured.graph
        forward = graph.replay(inputs, self.model, self.kv_cache)
        self.trace.event(
            GraphReplayed(
                mode=graph.mode,
                num_tokens=inputs.metadata.num_tokens,
                num_padded_tokens=graph.size,
                pieces=graph.num_pieces,
                operations=graph.operations.replayed,
            ),
            duration_us=forward.times.total_us,
        )
        return forward

    def _log_forward(self, inputs: ModelInputs, forward: Forward) -> None:
        log, model, spec = self.trace.event, self.model, self.kv_cache.spec
        batch, times = inputs.metadata, forward.times
        log(
            ForwardRun(batch.num_tokens, len(self._scheduled), model.num_layers),
            duration_us=times.total_us,
        )
        log(WeightsRead(model.read_bytes))
        log(ModulesTimed(times.kinds, times.calls, times.durations_us))
        log(
            AttentionRun(forward.attention, model.num_layers, batch.num_tokens),
            duration_us=times.duration_us("attention") or None,  # a CUDA graph does not tell
        )
        log(KVWritten(batch.num_tokens, batch.num_tokens * spec.bytes_per_token))
        for item, table, seq_len in zip(
            self._scheduled, batch.block_tables, batch.seq_lens, strict=True
        ):
            num_bytes = len(table) * spec.bytes_per_block
            log(PagesRead(item.request_id, table, seq_len, num_bytes))
        log(HeadsGrouped(model.num_attention_heads, model.num_kv_heads, spec.bytes_per_token))

    # -- phase sample ---------------------------------------------------------------------------

    @in_turn
    def sample_tokens(self) -> ModelRunnerOutput:
        """Tokens for each request whose known tokens are all computed now, and drafts behind them.

        One token, and one more for each draft of it that is accepted.
        """
        if self._inputs is None:
            return ModelRunnerOutput({})
        for prompt in self._prompt_rows:
            self._rank_prompt(prompt)
        tokens: dict[str, tuple[int, ...]] = {}
        logprobs: dict[str, tuple[TokenLogprobs, ...]] = {}
        for item, kept in self._choose():
            for sampled in kept:
                self.requests[item.request_id].append(sampled.token)
            tokens[item.request_id] = tuple(sampled.token for sampled in kept)
            rated = tuple(sampled.logprobs for sampled in kept if sampled.logprobs is not None)
            if rated:
                logprobs[item.request_id] = rated
        drafts = self._propose(tokens)
        self.trace.event(TokensReturned(sum(map(len, tokens.values()))))
        self._end_step()
        return ModelRunnerOutput(tokens, logprobs, self._tell_prompts(tokens), drafts)

    def _choose(self) -> list[tuple[SampledRows, list[Sampled]]]:
        """What each request of `_sampled` gets."""
        if not self._sampled:
            return []
        assert self._logits is not None, "sample_tokens follows execute_model"
        rows = [self._sampling_rows(item) for item in self._sampled]
        with torch.inference_mode():
            chosen = iter(self.sampler.sample(self._wanted_logits(self._logits), sum(rows, [])))
        outcome = []
        for item, own in zip(self._sampled, rows, strict=True):
            kept = verify(item.draft_token_ids, [next(chosen) for _ in own])
            if item.draft_token_ids:
                self._log_verified(item, kept)
            for row, sampled in zip(own, kept, strict=False):
                self._log_sampled(item.request_id, row, sampled)
            outcome.append((item, kept))
        return outcome

    def _propose(self, request_ids: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Drafts for those that go on, by request; who has none is not in it."""
        drafts: dict[str, tuple[int, ...]] = {}
        if self.proposer is None:
            return drafts
        for request_id in request_ids:
            known = self.requests[request_id].token_ids
            began = time.perf_counter()
            found = self.proposer.propose(known)
            if found is None:
                continue
            us = (time.perf_counter() - began) * 1e6
            drafts[request_id], matched_at, num_matched = found
            texts = self._texts(found.token_ids)
            self.trace.event(
                DraftsProposed(
                    request_id, found.token_ids, texts, len(known), matched_at, num_matched
                ),
                duration_us=us,
            )
        return drafts

    def _rank_prompt(self, rows: PromptRows) -> None:
        """Add what this step's logits say of a prompt's tokens to what is known of them."""
        assert self._logits is not None, "sample_tokens follows execute_model"
        state = self.requests[rows.request_id]
        count = state.sampling_params.prompt_logprobs
        assert state.prompt_logprobs is not None and count is not None
        for offset in range(0, rows.num_rows, RANKED_AT_ONCE):
            size = min(RANKED_AT_ONCE, rows.num_rows - offset)
            logits_row, next_token = rows.logits_row + offset, rows.first + offset + 1
            logits = self._logits[logits_row : logits_row + size].float()
            targets = state.token_ids[next_token : next_token + size]
            state.prompt_logprobs += token_logprobs(logits, targets, count)

    def _tell_prompts(self, sampled: Iterable[str]) -> dict[str, PromptLogprobs]:
        """The log-probabilities of the prompts whose first token is there; each is told once."""
        told: dict[str, PromptLogprobs] = {}
        for request_id in sampled:
            state = self.requests[request_id]
            if state.prompt_logprobs is not None:
                told[request_id], state.prompt_logprobs = tuple(state.prompt_logprobs), None
        return told

    def _log_verified(self, item: SampledRows, kept: list[Sampled]) -> None:
        drafts, num_accepted = item.draft_token_ids, len(kept) - 1
        judged = [
            sampled.candidates.chances(draft)
            for draft, sampled in zip(drafts, kept, strict=False)
            if draft >= 0
        ]
        self.trace.event(
            DraftsVerified(
                item.request_id,
                drafts,
                self._texts(drafts),
                len(self.requests[item.request_id].token_ids),
                num_accepted,
                tuple(four_digits(own) for own, _ in judged),
                tuple(four_digits(chance) for _, chance in judged if chance is not None),
            )
        )

    def _log_sampled(self, request_id: str, row: SamplingRow, sampled: Sampled) -> None:
        shown = sampled.candidates
        self.trace.event(
            TokenSampled(
                request_id,
                sampled.token,
                row.params.is_greedy,
                shown.token_ids,
                self._texts(shown.token_ids),
                tuple(map(four_digits, shown.probabilities)),
                tuple(map(four_digits, shown.drawn_from)),
            )
        )

    def _texts(self, token_ids: Iterable[int]) -> tuple[str, ...]:
        """Each by itself; of padding none."""
        return tuple(self.texts.of(token) if token >= 0 else "" for token in token_ids)

    def _wanted_logits(self, logits: Tensor) -> Tensor:
        """The rows of `_sampled`: all, but for rows of prompts and of requests dropped since."""
        rows = [row for item in self._sampled for row in item.logits_rows]
        return logits if len(rows) == len(logits) else logits[rows]

    def _sampling_rows(self, item: SampledRows) -> list[SamplingRow]:
        """One for each row: each counts the drafts before it as if they were accepted."""
        state, drafts = self.requests[item.request_id], item.draft_token_ids
        counts = state.counts
        num_output = len(state.token_ids) - state.num_prompt_tokens
        return [
            SamplingRow(
                params=state.sampling_params,
                seed=state.seed,
                output_index=num_output + place,
                eos_token_ids=self.model.eos_token_ids,
                counts=counts.followed_by(drafts[:place]) if counts and place else counts,
                draft=draft if draft >= 0 else None,
            )
            for place, draft in enumerate((*drafts, NO_DRAFT))
        ]

    def _end_step(self) -> None:
        self._scheduled, self._inputs, self._logits = (), None, None
        self._sampled, self._prompt_rows = (), ()

    # -- its part of the state ------------------------------------------------------------------

    def take_changes(self) -> Changes:
        """The graphs that were captured, or used for the first time, since the last call."""
        changes, self._changes = self._changes, {}
        return changes

    def snapshot(self) -> State:
        """What can be captured, and the graphs that this engine has used, by mode and size."""
        return {"dispatcher": self.dispatcher.record(), "graphs": dict(self._graphs_told)}

    def pool_bytes(self) -> int:
        """Bytes of the KV cache's tensors."""
        return self.kv_cache.num_bytes

    def known_requests(self) -> Mapping[str, CachedRequestState]:
        """The requests that it was told of and that have not ended since."""
        return self.requests

    # -- a moment of it -------------------------------------------------------------------------

    @in_turn
    def save_blocks(self, blocks: Sequence[int]) -> dict[str, Tensor]:
        """K and V of these blocks in the pool's dtype, as copies in main memory, by name."""
        index = torch.as_tensor(blocks, dtype=torch.int64, device=self.device)
        parts = self.kv_cache.parts()
        return {
            name: bits(part).index_select(1, index).cpu().view(part.dtype)
            for name, part in parts.items()
        }

    @in_turn
    def restore_blocks(self, blocks: Sequence[int], saved: Mapping[str, Tensor]) -> None:
        """Write back what `save_blocks` of a like pool gave. ValueError where it does not fit."""
        parts = self.kv_cache.parts()
        if parts.keys() != saved.keys():
            odd = sorted(parts.keys() ^ saved.keys())[0]
            raise ValueError(f"{odd}: is in the file or in the pool, and not in both")
        index = torch.as_tensor(blocks, dtype=torch.int64, device=self.device)
        for name, part in parts.items():
            shape, found = (part.shape[0], len(blocks), *part.shape[2:]), saved[name]
            if found.dtype is not part.dtype or found.shape != shape:
                raise ValueError(
                    f"{name}: {found.dtype} {list(found.shape)} does not fit the pool's "
                    f"{part.dtype} {list(shape)}"
                )
        for name, part in parts.items():
            bits(part).index_copy_(1, index, bits(saved[name].to(self.device)))

    def rated_prompts(self) -> Mapping[str, list[TokenLogprobs | None]]:
        """What is known of the prompts whose log-probabilities are yet to be told, by request."""
        return {
            key: state.prompt_logprobs
            for key, state in self.requests.items()
            if state.prompt_logprobs is not None
        }

    def restore_request(
        self, item: ScheduledRequest, rated: list[TokenLogprobs | None] | None
    ) -> None:
        """Know a running request, as if it had been resumed and all were done but what is left."""
        self._update_state(item)
        self.requests[item.request_id].prompt_logprobs = rated

    # -- between phases -------------------------------------------------------------------------

    def drop_requests(self, request_ids: AbstractSet[str]) -> None:
        """Forget requests, also those of the step in progress; ids it does not know are ignored.

        Before the forward the batch is flattened anew without them. After it their rows are
        computed already and only their tokens are not sampled.
        """
        for request_id in request_ids:
            self.requests.pop(request_id, None)
        if not any(item.request_id in request_ids for item in self._scheduled):
            return
        remaining = tuple(item for item in self._scheduled if item.request_id not in request_ids)
        if self._logits is None:
            self._build_inputs(remaining)
        else:
            self._scheduled = remaining
            self._sampled = tuple(s for s in self._sampled if s.request_id not in request_ids)
            self._prompt_rows = tuple(
                rows for rows in self._prompt_rows if rows.request_id not in request_ids
            )


def four_digits(probability: float) -> float:
    """A probability as the log has it: short, and 0 only where it is 0."""
    return float(f"{probability:.4g}")


def graph_record(facts: GraphCaptured) -> Changes:
    """A captured graph as the state has it."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in facts._asdict().items()
    }
