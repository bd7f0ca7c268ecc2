"""For which numbers of tokens graphs are captured. Part of the box CUDA graph.

vLLM 0.26.0: `_set_cudagraph_sizes` in `vllm/config/vllm.py`, and for speculative decoding
`adjust_cudagraph_sizes_for_spec_decode` in `vllm/config/compilation.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.config import ConfigError

MOST_TOKENS = 512  # of a graph, unless a larger size is asked for by name


def capture_sizes(
    max_num_seqs: int,
    max_num_batched_tokens: int,
    uniform_decode_query_len: int = 1,
    wanted: Sequence[int] | None = None,
    largest: int | None = None,
) -> tuple[int, ...]:
    """The sizes, in tokens of the padded batch, ascending; empty where none fits a step.

    `wanted` is `cudagraph_capture_sizes`, `largest` `max_cudagraph_capture_size`. ConfigError where
    both are given and the largest of the one is not the other.
    """
    if wanted is not None:
        sizes = sorted({size for size in wanted if size <= max_num_batched_tokens})
        if largest is not None and largest != max(sizes, default=0):
            raise ConfigError(
                f"max_cudagraph_capture_size {largest} is not the largest of "
                f"cudagraph_capture_sizes that fits a step, {max(sizes, default=0)}; leave one of "
                "the two empty"
            )
        return tuple(sizes)
    if largest is None:
        largest = min(2 * max_num_seqs * uniform_decode_query_len, MOST_TOKENS)
    largest = min(largest, max_num_batched_tokens)
    ladder = (1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16))
    found = {size for size in ladder if size <= largest}
    if largest == max_num_batched_tokens:
        found.add(largest)  # the largest step has a graph as well
    return tuple(sorted(found))


def for_decode_query_len(sizes: Sequence[int], query_len: int) -> tuple[int, ...]:
    """The sizes where a decode batch has `query_len` tokens a request: whole requests only.

    They are rounded up, as long as the largest holds them; none is left where the largest is less
    than one decode. (vLLM refuses to start then; here every batch runs eagerly.)
    """
    if query_len == 1 or not sizes:
        return tuple(sizes)
    most = max(sizes)
    if query_len > most:
        return ()
    rounded = {-(-size // query_len) * query_len for size in sizes}
    return tuple(sorted(size for size in rounded if size <= most)) or (query_len,)
