"""Runs the model over what the scheduler chose (map: GPU model runner).

Three phases of a step: `prepare_inputs` flattens the batch, `execute_model` computes and keeps
the logits, `sample_tokens` chooses. Counterpart in vLLM 0.26.0:
`vllm/v1/worker/gpu_model_runner.py`.
"""

from __future__ import annotations

import time
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.config import EngineConfig, SamplingParams
from engine.cuda_graph import BatchDescriptor, CudagraphDispatcher
from engine.events import (
    AttentionRun,
    BlockTablesUpdated,
    ForwardRun,
    HeadsGrouped,
    InputsPrepared,
    KVWritten,
    ModulesTimed,
    PagesRead,
    StepDispatched,
    TokenSampled,
    TokensReturned,
    WeightsRead,
)
from engine.kv_cache import KVCache, KVCacheSpec
from engine.model_loader import LoadedModel, ModelError
from engine.module_timer import ModuleTimer, ModuleTimes
from engine.outputs import ModelRunnerOutput, NewRequestData, ScheduledRequest, SchedulerOutput
from engine.paged_attention import (
    ForwardContext,
    PagedAttentionMetadata,
    attending_through_pages,
    check_pageable,
    make_context,
)
from engine.sampler import Sampler, SamplingRow, request_seed
from engine.trace import Trace


@dataclass(slots=True)
class CachedRequestState:
    """What the runner knows of a request, so that it is told only what changes."""

    token_ids: list[int]  # prompt and output
    num_prompt_tokens: int
    block_ids: list[int]  # logical index -> physical block
    sampling_params: SamplingParams
    seed: int


class SampledRow(NamedTuple):
    """A request that gets a token in this step, and its row among the logits that are kept."""

    request_id: str
    logits_row: int


class ModelInputs(NamedTuple):
    """A step's batch, ready for the model."""

    request_ids: tuple[str, ...]
    input_ids: Tensor  # [1, rows]
    positions: Tensor  # [1, rows]
    logits_to_keep: Tensor  # rows whose logits are wanted: the last one of each sampling request
    metadata: PagedAttentionMetadata


class ModelRunner:
    """One engine's hold on the model: its requests, its KV cache, its step in progress.

    The weights are shared with every other engine of the process; the pool is its own.
    """

    def __init__(self, model: LoadedModel, config: EngineConfig, trace: Trace):
        check_pageable(model.model)
        self.model = model
        self.config = config
        self.trace = trace
        self.device = model.model.device
        self.kv_cache = KVCache(
            KVCacheSpec.of(model, config.block_size), config.num_gpu_blocks, self.device
        )
        self.dispatcher = CudagraphDispatcher(config)
        self.sampler = Sampler()
        self.timer = ModuleTimer.of(model.model)
        self.requests: dict[str, CachedRequestState] = {}
        self._scheduled: tuple[ScheduledRequest, ...] = ()
        self._inputs: ModelInputs | None = None
        self._logits: Tensor | None = None
        self._sampled: tuple[SampledRow, ...] = ()

    # -- phase prepare --------------------------------------------------------------------------

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
            self.requests[item.request_id] = self._new_state(item, item.data)
            return True
        self.requests[item.request_id].block_ids.extend(item.new_block_ids)
        return bool(item.new_block_ids)

    def _new_state(self, item: ScheduledRequest, data: NewRequestData) -> CachedRequestState:
        return CachedRequestState(
            token_ids=list(data.all_token_ids),
            num_prompt_tokens=data.num_prompt_tokens,
            block_ids=list(item.admitted_block_ids),
            sampling_params=data.sampling_params,
            seed=request_seed(data.sampling_params, self.config.seed, item.request_id),
        )

    def _build_inputs(self, scheduled: tuple[ScheduledRequest, ...]) -> None:
        """Make the batch of `scheduled` the step in progress, and say how it will run."""
        began = time.perf_counter()
        self._scheduled, self._logits = scheduled, None
        self._inputs, self._sampled = None, ()
        if not scheduled:
            return
        flat = self._flatten(scheduled)
        ends = np.asarray(flat.query_start_loc[1:]) - 1
        samples = [
            i
            for i, item in enumerate(scheduled)
            if flat.seq_lens[i] == len(self.requests[item.request_id].token_ids)
        ]
        self._sampled = tuple(
            SampledRow(scheduled[i].request_id, row) for row, i in enumerate(samples)
        )
        self._inputs = ModelInputs(
            request_ids=flat.requests,
            input_ids=self._tensor(flat.input_ids)[None],
            positions=self._tensor(flat.positions)[None],
            logits_to_keep=self._tensor(ends[samples]),
            metadata=PagedAttentionMetadata(
                query_start_loc=flat.query_start_loc,
                seq_lens=flat.seq_lens,
                block_tables=tuple(tuple(self.requests[r].block_ids) for r in flat.requests),
                slot_mapping=self._tensor(flat.slot_mapping),
                block_size=self.config.block_size,
            ),
        )
        self.trace.event(flat, duration_us=(time.perf_counter() - began) * 1e6)
        dispatch = self.dispatcher.dispatch(BatchDescriptor.of(self._inputs.metadata.query_lens))
        self.trace.event(
            StepDispatched(dispatch.mode, dispatch.num_tokens, dispatch.num_padded_tokens),
            reason=dispatch.reason,
        )

    def _flatten(self, scheduled: tuple[ScheduledRequest, ...]) -> InputsPrepared:
        """One row a token, the rows of a request next to each other."""
        block_size = self.config.block_size
        starts, seq_lens = [0], list[int]()
        input_ids, positions, slots = list[int](), list[int](), list[int]()
        for item in scheduled:
            state = self.requests[item.request_id]
            first, end = item.num_computed_tokens, item.num_computed_tokens + item.num_tokens
            if end > len(state.token_ids) or end > len(state.block_ids) * block_size:
                raise RuntimeError(
                    f"{item.request_id}: tokens {first} to {end} are scheduled, but it has "
                    f"{len(state.token_ids)} tokens and {len(state.block_ids)} blocks"
                )
            position = np.arange(first, end)
            block = np.asarray(state.block_ids)[position // block_size]
            starts.append(starts[-1] + item.num_tokens)
            seq_lens.append(end)
            input_ids.extend(state.token_ids[first:end])
            positions.extend(range(first, end))
            slots.extend((block * block_size + position % block_size).tolist())
        return InputsPrepared(
            requests=tuple(item.request_id for item in scheduled),
            query_start_loc=tuple(starts),
            seq_lens=tuple(seq_lens),
            input_ids=tuple(input_ids),
            positions=tuple(positions),
            slot_mapping=tuple(slots),
        )

    def _tensor(self, values: tuple[int, ...] | np.ndarray[Any, Any]) -> Tensor:
        return torch.as_tensor(values, dtype=torch.int64, device=self.device)

    # -- phase execute --------------------------------------------------------------------------

    def execute_model(self) -> None:
        """Run the model over the batch; its logits wait for `sample_tokens`."""
        inputs = self._inputs
        if inputs is None:
            return
        with torch.inference_mode(), attending_through_pages(self.model.model):
            context = make_context(inputs.metadata, self.kv_cache, self.timer, self.device)
            self.timer.start()
            try:
                output: Any = self.model.model(
                    input_ids=inputs.input_ids,
                    position_ids=inputs.positions,
                    use_cache=False,
                    logits_to_keep=inputs.logits_to_keep,
                    paged=context,
                )
            finally:
                times = self.timer.stop()
        if context.layers_run != self.model.num_layers:
            raise ModelError(
                f"only {context.layers_run} of {self.model.num_layers} layers of "
                f"{self.model.name} went through PagedAttention; it cannot be run here"
            )
        self._logits = output.logits[0]
        self._log_forward(inputs, context, times)

    def _log_forward(
        self, inputs: ModelInputs, context: ForwardContext, times: ModuleTimes
    ) -> None:
        log, model, spec = self.trace.event, self.model, self.kv_cache.spec
        batch = inputs.metadata
        log(
            ForwardRun(batch.num_tokens, len(inputs.request_ids), model.num_layers),
            duration_us=times.total_us,
        )
        log(WeightsRead(model.weight_bytes))
        log(ModulesTimed(times.kinds, times.calls, times.durations_us))
        log(
            AttentionRun(context.backend.name, context.layers_run, batch.num_tokens),
            duration_us=times.duration_us("attention"),
        )
        log(KVWritten(batch.num_tokens, batch.num_tokens * spec.bytes_per_token))
        for request_id, table, seq_len in zip(
            inputs.request_ids, batch.block_tables, batch.seq_lens, strict=True
        ):
            num_bytes = len(table) * spec.bytes_per_block
            log(PagesRead(request_id, table, seq_len, num_bytes))
        log(HeadsGrouped(model.num_attention_heads, model.num_kv_heads, spec.bytes_per_token))

    # -- phase sample ---------------------------------------------------------------------------

    def sample_tokens(self) -> ModelRunnerOutput:
        """One token for each request whose known tokens are all computed now."""
        if self._inputs is None:
            return ModelRunnerOutput({})
        tokens: dict[str, tuple[int, ...]] = {}
        if self._sampled:
            assert self._logits is not None, "sample_tokens follows execute_model"
            rows = [self._sampling_row(item.request_id) for item in self._sampled]
            with torch.inference_mode():
                chosen = self.sampler.sample(self._wanted_logits(self._logits), rows)
            for item, row, token in zip(self._sampled, rows, chosen, strict=True):
                self.requests[item.request_id].token_ids.append(token)
                self.trace.event(TokenSampled(item.request_id, token, row.params.is_greedy))
                tokens[item.request_id] = (token,)
        self.trace.event(TokensReturned(len(tokens)))
        self._end_step()
        return ModelRunnerOutput(tokens)

    def _wanted_logits(self, logits: Tensor) -> Tensor:
        """The rows of `_sampled`: all, unless requests were dropped since the forward."""
        if len(self._sampled) == len(logits):
            return logits
        return logits[[item.logits_row for item in self._sampled]]

    def _sampling_row(self, request_id: str) -> SamplingRow:
        state = self.requests[request_id]
        return SamplingRow(
            params=state.sampling_params,
            seed=state.seed,
            output_index=len(state.token_ids) - state.num_prompt_tokens,
            eos_token_ids=self.model.eos_token_ids,
        )

    def _end_step(self) -> None:
        self._scheduled, self._inputs, self._logits, self._sampled = (), None, None, ()

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
