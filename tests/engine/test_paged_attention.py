"""Attention through shuffled pages equals plain Transformers, for every kind of attention."""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import engine.paged_attention as paged
from engine.kv_cache import KVCache, KVCacheSpec
from engine.model_loader import LoadedModel, ModelError
from engine.module_timer import ModuleTimer
from engine.paged_attention import torch_backend
from tests.engine.tiny_configs import CONFIGS, VOCAB, plain_logits, tiny

BLOCK_SIZE = 4
NUM_BLOCKS = 128
CPU = torch.device("cpu")


class PagedSequences:
    """Sequences over one pool, with block tables in random order, computed chunk by chunk."""

    def __init__(self, model: LoadedModel, lengths: list[int], seed: int = 0):
        self.model = model
        self.random = random.Random(seed)
        self.cache = KVCache(KVCacheSpec.of(model, BLOCK_SIZE), NUM_BLOCKS, CPU)
        for layer in self.cache.layers:
            layer.data.uniform_(-3, 3)  # what earlier owners left must not matter
        free = list(range(1, NUM_BLOCKS))
        self.random.shuffle(free)
        self.tokens = [[self.random.randrange(3, VOCAB) for _ in range(n)] for n in lengths]
        self.tables = [tuple(free.pop() for _ in range(-(-n // BLOCK_SIZE))) for n in lengths]
        self.computed = [0 for _ in lengths]

    def step(self, chunks: dict[int, int]) -> list[torch.Tensor]:
        """Compute so many more tokens of each sequence in one batch; their logits."""
        starts, ids, positions, slots = [0], list[int](), list[int](), list[int]()
        for i, count in chunks.items():
            span = range(self.computed[i], self.computed[i] + count)
            ids += [self.tokens[i][p] for p in span]
            positions += span
            slots += [self.tables[i][p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in span]
            self.computed[i] += count
            starts.append(len(ids))
        metadata = paged.PagedAttentionMetadata(
            query_start_loc=tuple(starts),
            seq_lens=tuple(self.computed[i] for i in chunks),
            block_tables=tuple(
                self.tables[i][: -(-self.computed[i] // BLOCK_SIZE)] for i in chunks
            ),
            slot_mapping=torch.tensor(slots),
            block_size=BLOCK_SIZE,
        )
        timer = ModuleTimer.of(self.model.model)
        with torch.inference_mode(), paged.attending_through_pages(self.model.model):
            output: Any = self.model.model(
                input_ids=torch.tensor([ids]),
                position_ids=torch.tensor([positions]),
                use_cache=False,
                paged=paged.make_context(metadata, self.cache, timer, CPU),
            )
        return list(output.logits[0].split([*chunks.values()]))

    def run(self) -> list[torch.Tensor]:
        """All tokens of all sequences, in random batches of prefill chunks and decodes."""
        logits: list[list[torch.Tensor]] = [[] for _ in self.tokens]
        while any(self.left(i) for i in range(len(self.tokens))):
            chunks = {
                i: min(self.left(i), self.random.choice([1, 1, 2, 5, 9]))
                for i in self.random.sample(range(len(self.tokens)), len(self.tokens))
                if self.left(i) and self.random.random() < 0.8
            }
            if chunks:
                for i, rows in zip(chunks, self.step(chunks), strict=True):
                    logits[i].append(rows)
        return [torch.cat(rows) for rows in logits]

    def left(self, i: int) -> int:
        return len(self.tokens[i]) - self.computed[i]

    def largest_error(self) -> float:
        """Run, and compare each position of each sequence with plain Transformers."""
        return max(
            float((rows - plain_logits(self.model, tokens)).abs().max())
            for rows, tokens in zip(self.run(), self.tokens, strict=True)
        )


LENGTHS = [37, 5, 61, 18, 1]


@pytest.mark.parametrize("name", CONFIGS)
def test_mixed_batches_equal_plain_transformers(name: str) -> None:
    sequences = PagedSequences(tiny(name), LENGTHS)
    assert sequences.largest_error() < 1e-5


@pytest.mark.parametrize("name", ["mistral", "gemma2", "gemma3_text", "gpt_oss"])
def test_without_the_window_the_result_is_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch, "sliding_window")
    assert PagedSequences(tiny(name), LENGTHS).largest_error() > 1e-2


@pytest.mark.parametrize("change", [-1, 1])
def test_a_window_off_by_one_is_wrong(change: int, monkeypatch: pytest.MonkeyPatch) -> None:
    original = paged.AttentionOptions

    def shifted(**values: Any) -> paged.AttentionOptions:
        window = values.pop("sliding_window")
        return original(**values, sliding_window=window + change)

    monkeypatch.setattr(paged, "AttentionOptions", shifted)
    assert PagedSequences(tiny("mistral"), LENGTHS).largest_error() > 1e-3


@pytest.mark.parametrize(("name", "option"), [("gemma2", "softcap"), ("gpt_oss", "sinks")])
def test_without_soft_cap_or_sinks_the_result_is_wrong(
    name: str, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(monkeypatch, option)
    assert PagedSequences(tiny(name), LENGTHS).largest_error() > 1e-2


def forget(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    """Break the attention function: it no longer passes this option on."""
    original = paged.AttentionOptions
    monkeypatch.setattr(
        paged, "AttentionOptions", lambda **values: original(**(values | {option: None}))
    )


def without(name: str) -> Callable[[nn.Module, Any], None]:
    """Break a model: put nothing in the place of these modules."""

    def change(model: nn.Module, config: Any) -> None:
        for module in list(model.modules()):
            if hasattr(module, name):
                setattr(module, name, nn.Identity())

    return change


def set_all(name: str, value: Any) -> Callable[[nn.Module, Any], None]:
    """Break a model: this is the same in all its modules, and in its configuration."""

    def change(model: nn.Module, config: Any) -> None:
        for owner in (*model.modules(), config):
            if hasattr(owner, name):
                setattr(owner, name, value)

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("qwen3", without("q_norm")),
        ("olmo2", without("k_norm")),
        ("gemma3_text", without("q_norm")),
        ("smollm3", set_all("use_rope", 1)),
        ("granite", set_all("scaling", 1.0)),
        ("granite", set_all("logits_scaling", 1.0)),
        ("gemma2", set_all("final_logit_softcapping", None)),
    ],
)
def test_without_what_is_the_model_s_own_the_result_is_wrong(
    name: str, change: Callable[[nn.Module, Any], None]
) -> None:
    """Norms of queries, layers without positions and scales reach the paged model's logits."""
    model = tiny(name)
    broken = dataclasses.replace(model, model=copy.deepcopy(model.model))
    change(broken.model, broken.model.config)
    sequences = PagedSequences(broken, [37])
    (logits,) = sequences.run()
    assert (logits - plain_logits(model, sequences.tokens[0])).abs().max() > 1e-2


def test_one_wrong_block_is_wrong() -> None:
    sequences = PagedSequences(tiny("llama"), [24])
    sequences.step({0: 23})
    table = list(sequences.tables[0])
    table[2] = next(b for b in range(1, NUM_BLOCKS) if b not in table)
    sequences.tables[0] = tuple(table)
    (logits,) = sequences.step({0: 1})
    assert (logits[-1] - plain_logits(sequences.model, sequences.tokens[0])[-1]).abs().max() > 1e-2


def test_another_kv_head_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    original = torch_backend.gather

    def rolled(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = original(*arguments)
        return keys.roll(1, dims=1), values

    monkeypatch.setattr(torch_backend, "gather", rolled)
    assert PagedSequences(tiny("llama"), LENGTHS).largest_error() > 1e-2


def test_keys_and_values_lie_in_their_slots_and_nowhere_else() -> None:
    sequences = PagedSequences(tiny("llama"), [10])
    before = [layer.data.clone() for layer in sequences.cache.layers]
    sequences.step({0: 10})
    table = sequences.tables[0]
    written = {table[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in range(10)}
    for old, (new, _) in zip(before, sequences.cache.layers, strict=True):
        changed = (old != new).any(dim=(0, 3, 4)) if old.dim() == 5 else old != new
        assert set(changed.flatten().nonzero().flatten().tolist()) == written


def test_a_block_filled_in_this_step_can_be_read_in_it() -> None:
    """Two requests with one prefix, admitted in one step: the second reads the first's block."""
    sequences = PagedSequences(tiny("llama"), [8, 9])
    sequences.tokens[1][:4] = sequences.tokens[0][:4]
    sequences.tables[1] = (sequences.tables[0][0], *sequences.tables[1][1:])
    sequences.computed[1] = 4
    logits = sequences.step({1: 5, 0: 8})  # the reader's rows even come first
    expected = plain_logits(sequences.model, sequences.tokens[1])[4:]
    assert (logits[0] - expected).abs().max() < 1e-5


def test_decodes_of_very_different_lengths_do_not_pay_for_each_other() -> None:
    sequences = PagedSequences(tiny("llama"), [201, 9, 6, 190])
    lengths = (201, 9, 6, 190)
    sequences.step({i: n - 1 for i, n in enumerate(lengths)})
    metadata = paged.PagedAttentionMetadata(
        query_start_loc=(0, 1, 2, 3, 4),
        seq_lens=lengths,
        block_tables=tuple(sequences.tables),
        slot_mapping=torch.zeros(4, dtype=torch.int64),
        block_size=BLOCK_SIZE,
    )
    backend = torch_backend.TorchPagedAttention.of(metadata, CPU)
    assert sorted(group.padded_len for group in backend.decodes) == [12, 204]
    for i, rows in enumerate(sequences.step(dict.fromkeys(range(4), 1))):
        expected = plain_logits(sequences.model, sequences.tokens[i])[-1]
        assert (rows[0] - expected).abs().max() < 1e-5


def test_a_model_whose_attention_cannot_be_replaced_is_refused() -> None:
    from transformers import BloomConfig, BloomForCausalLM

    bloom = BloomForCausalLM(BloomConfig(vocab_size=16, hidden_size=8, n_layer=1, n_head=2))
    with pytest.raises(ModelError, match="BloomForCausalLM"):
        paged.check_pageable(bloom)


def test_the_model_is_left_as_it_was() -> None:
    model = tiny("llama")
    tokens = [5, 6, 7, 8]
    before = plain_logits(model, tokens)
    sequences = PagedSequences(model, [9])
    sequences.run()
    assert model.model.config._attn_implementation == "eager"
    assert torch.equal(plain_logits(model, tokens), before)
