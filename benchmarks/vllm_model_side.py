"""vLLM's side of `decode`: its whole engine with a model. Runs with a Python that has vLLM 0.26.0.

It imports nothing of this project. Commands come on standard input, a JSON array a line:
`["steps", {"count": 8}]`; each answer is a line of JSON. README.md, "decode", says what is timed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # before vLLM is imported: what it prints goes to standard error
os.environ |= {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}

import torch  # noqa: E402
from vllm import LLM, SamplingParams, __version__  # noqa: E402

VERSION = "0.26.0"


class Peer:
    """What the commands do."""

    def __init__(self) -> None:
        self.count = 0

    def begin(self, folder: str, eager: bool) -> dict[str, Any]:
        """Load the model in fp32, without prefix caching and without a second process."""
        llm = LLM(
            model=folder,
            dtype="float32",
            enforce_eager=eager,
            max_model_len=1024,
            max_num_seqs=16,
            max_num_batched_tokens=512,
            block_size=16,
            enable_prefix_caching=False,
            async_scheduling=False,
        )
        self.engine = llm.llm_engine
        return {"threads": torch.get_num_threads()}

    def add(self, prompts: list[list[int]], max_tokens: int) -> None:
        """Requests for the next step."""
        for prompt in prompts:
            params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
            self.engine.add_request(f"r{self.count}", {"prompt_token_ids": prompt}, params)
            self.count += 1

    def steps(self, count: int) -> list[float]:
        """Run so many; the milliseconds of each."""
        times = []
        for _ in range(count):
            began = time.perf_counter()
            self.engine.step()
            times.append((time.perf_counter() - began) * 1e3)
        return times

    def finish(self) -> None:
        """Run until nobody is left."""
        while self.engine.has_unfinished_requests():
            self.engine.step()


def main() -> None:
    """Answer until the input ends."""
    if not __version__.startswith(VERSION):
        sys.exit(f"glassbox: vLLM {VERSION} is wanted, {__version__} is here")
    peer = Peer()
    for line in sys.stdin:
        name, arguments = json.loads(line)
        command: Callable[..., Any] = getattr(peer, name)
        print(json.dumps(command(**arguments)), file=ANSWERS, flush=True)
    os._exit(0)  # what is left open at this point is nobody's business


if __name__ == "__main__":
    main()
