"""vLLM's scheduler, for `beside_vllm.py`; runs in a Python of its own that has vLLM 0.26.0.

Takes commands and gives answers, a line of JSON each: it knows no workload. No model is made: a
stand-in samples the same token for everybody.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ |= {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}

import torch
from vllm import SamplingParams, __version__, envs
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
)
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from benchmarks.harness.clock import Clock

VERSION = "0.26.0"
BLOCK_SIZE = 16
MODEL = {  # only its limits matter
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 1,
    "num_hidden_layers": 1,
    "vocab_size": 100_000,
    "max_position_embeddings": 1 << 16,
}


def make_scheduler(
    num_gpu_blocks: int, max_num_batched_tokens: int, max_num_seqs: int, max_model_len: int
) -> Scheduler:
    """A scheduler as a server makes it, its statistics included."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(MODEL))
        model = ModelConfig(
            model=folder, skip_tokenizer_init=True, dtype="float32", max_model_len=max_model_len
        )
    config = VllmConfig(
        model_config=model,
        scheduler_config=SchedulerConfig(
            max_model_len=max_model_len,
            is_encoder_decoder=False,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
        device_config=DeviceConfig("cpu"),
    )
    config.cache_config.num_gpu_blocks = num_gpu_blocks
    layer = FullAttentionSpec(BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32)
    return Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(num_gpu_blocks, [], [KVCacheGroupSpec(["layer"], layer)]),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK_SIZE,
        log_stats=True,
    )


class Peer:
    """What the commands do."""

    def __init__(self) -> None:
        sha256 = get_hash_fn_by_name("sha256")
        init_none_hash(sha256)
        self.block_hasher = get_request_block_hasher(BLOCK_SIZE, sha256)
        self.count = 0  # of requests so far

    def begin(self, **limits: int) -> None:
        """A new scheduler in place of the old one."""
        self.scheduler = make_scheduler(**limits)

    def settle(self) -> None:
        """As vLLM's engine before its first step."""
        envs.enable_envs_cache()
        gc.collect()
        gc.freeze()

    def add(self, prompts: list[list[int]], max_tokens: int) -> list[float]:
        """Make a request for each prompt and hand it in; what that took."""
        clock = Clock()
        clock.go()
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        for prompt in prompts:
            request = Request(
                f"r{self.count}",
                prompt,
                params,
                None,
                arrival_time=float(self.count),
                block_hasher=self.block_hasher,
            )
            self.scheduler.add_request(request)
            self.count += 1
        clock.stop()
        return clock.read()

    def steps(self, count: int) -> list[list[float]]:
        """Of each of some steps: what it took, the tokens it gave, who runs and who waits."""
        return [self._step() for _ in range(count)]

    def _step(self) -> list[float]:
        scheduler, clock = self.scheduler, Clock()
        clock.go()
        output = scheduler.schedule()
        clock.stop()
        tokens = self._sample(output.num_scheduled_tokens)
        clock.go()
        scheduler.update_from_output(output, tokens)
        clock.stop()
        given = output.total_num_scheduled_tokens
        return [*clock.read(), given, len(scheduler.running), len(scheduler.waiting)]

    def _sample(self, scheduled: dict[str, int]) -> ModelRunnerOutput:
        """A token for each request whose known tokens are all computed."""
        requests = [self.scheduler.requests[key] for key in scheduled]
        return ModelRunnerOutput(
            req_ids=list(scheduled),
            req_id_to_index={key: index for index, key in enumerate(scheduled)},
            sampled_token_ids=[
                [7] if request.num_computed_tokens == request.num_tokens else []
                for request in requests
            ],
        )


def main() -> None:
    """Answer until the input ends. What vLLM prints goes to standard error."""
    if not __version__.startswith(VERSION):
        sys.exit(f"glassbox: vLLM {VERSION} is wanted, {__version__} is here")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer = Peer()
    for line in sys.stdin:
        name, arguments = json.loads(line)
        command: Callable[..., Any] = getattr(peer, name)
        print(json.dumps(command(**arguments)), file=answers, flush=True)
    os._exit(0)  # what is left open at this point is nobody's business


main()
