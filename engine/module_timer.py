"""Where a forward's time goes, by kind of module (the eager step's counterpart of a GPU trace).

One clock, and a stack of what is running: at each boundary the time since the last one is charged
to the top of the stack, so nothing is counted twice and the kinds add up to the whole.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from torch import nn
from transformers import PreTrainedModel

from engine.layers.quantized import is_linear

# In the order of the page. `other` is all that is no module: rotary embedding, residual sums and
# the calls themselves.
KINDS = ("embed", "norm", "qkv_proj", "attention", "o_proj", "mlp", "lm_head", "other")
_OUTPUT_PROJECTIONS = {"o_proj", "out_proj", "c_proj", "dense", "wo"}


class ModuleTimes(NamedTuple):
    """One forward: what ran, how often and for how long, children not counted twice."""

    kinds: tuple[str, ...]
    calls: tuple[int, ...]
    durations_us: tuple[float, ...]
    total_us: float

    @classmethod
    def of(
        cls, kinds: tuple[str, ...], calls: tuple[int, ...], spent: dict[str, float]
    ) -> ModuleTimes:
        """The times of these kinds out of the seconds spent in each."""
        return cls(
            kinds=kinds,
            calls=calls,
            durations_us=tuple(round(spent[kind] * 1e6, 1) for kind in kinds),
            total_us=round(sum(spent.values()) * 1e6, 1),
        )

    def duration_us(self, kind: str) -> float:
        """Time spent in one kind of module; 0 where there was none."""
        return dict(zip(self.kinds, self.durations_us, strict=True)).get(kind, 0.0)


class ModuleTimer:
    """Hooks on a model's modules. They do nothing outside `start` ... `stop`.

    A model has one timer (`ModuleTimer.of`), however many engines run it by turns.
    """

    def __init__(self, model: PreTrainedModel):
        self._running = False
        self._stack: list[str] = []
        self._mark = 0.0
        self._spent: dict[str, float] = {}
        self._calls: dict[str, int] = {}
        for module, kind in timed_modules(model):
            self._hook(module, kind)

    @classmethod
    def of(cls, model: PreTrainedModel) -> ModuleTimer:
        """The timer of `model`, made on first use."""
        timer = _timers.get(model)
        if timer is None:
            timer = _timers[model] = cls(model)
        return timer

    @property
    def kind(self) -> str:
        """The kind of module that is running."""
        return self._stack[-1] if self._running else "other"

    def _hook(self, module: nn.Module, kind: str) -> None:
        def before(*_: Any) -> None:
            self.enter(kind)

        def after(*_: Any) -> None:
            self.leave()

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after)

    def start(self) -> None:
        """A forward begins; what a failed one left behind is forgotten."""
        self._stack = ["other"]
        self._spent = dict.fromkeys(KINDS, 0.0)
        self._calls = dict.fromkeys(KINDS, 0)
        self._running = True
        self._mark = time.perf_counter()

    def enter(self, kind: str) -> None:
        """A module of this kind begins."""
        if not self._running:
            return
        now = time.perf_counter()
        self._spent[self._stack[-1]] += now - self._mark
        self._calls[kind] += 1
        self._stack.append(kind)
        self._mark = now

    def leave(self) -> None:
        """The module that began last ends."""
        if not self._running:
            return
        now = time.perf_counter()
        self._spent[self._stack.pop()] += now - self._mark
        self._mark = now

    @property
    def calls(self) -> dict[str, int]:
        """Calls of each kind so far."""
        return dict(self._calls)

    def charge(self, spent: dict[str, float], calls: dict[str, int]) -> None:
        """Count what ran since the last boundary without modules: seconds and calls by kind."""
        now = time.perf_counter()
        self._spent[self._stack[-1]] += now - self._mark - sum(spent.values())
        for kind, seconds in spent.items():
            self._spent[kind] += seconds
        for kind, count in calls.items():
            self._calls[kind] += count
        self._mark = now

    def stop(self) -> ModuleTimes:
        """The forward is over: where its time went."""
        self._spent["other"] += time.perf_counter() - self._mark
        self._running = False
        kinds = tuple(kind for kind in KINDS if self._calls[kind] or kind == "other")
        return ModuleTimes.of(kinds, tuple(self._calls[kind] for kind in kinds), self._spent)


_timers: WeakKeyDictionary[PreTrainedModel, ModuleTimer] = WeakKeyDictionary()


def timed_modules(model: PreTrainedModel) -> Iterator[tuple[nn.Module, str]]:
    """The modules worth a measurement, each with its kind. Few: every hook costs a microsecond."""
    layers = decoder_layers(model)
    inside = {module for layer in layers for module in layer.modules()}
    head = model.get_output_embeddings()
    for module in model.modules():
        if module in inside:
            continue
        if module is head:
            yield module, "lm_head"
        elif isinstance(module, nn.Embedding):
            yield module, "embed"
        elif is_norm(module):
            yield module, "norm"
    for layer in layers:
        for child in layer.children():
            yield from timed_in_layer(child)


def timed_in_layer(child: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Of a decoder layer: norms, attention's projections, and all the rest as its MLP."""
    if is_norm(child):
        yield child, "norm"
    elif "Attention" in type(child).__name__:
        # The attention proper is no module: `paged_attention` enters and leaves the timer itself.
        for name, module in child.named_modules():
            if is_norm(module):
                yield module, "norm"
            elif is_linear(module):
                last = name.rsplit(".", 1)[-1]
                yield module, "o_proj" if last in _OUTPUT_PROJECTIONS else "qkv_proj"
    elif not isinstance(child, nn.Dropout):
        yield child, "mlp"


def decoder_layers(model: PreTrainedModel) -> nn.ModuleList:
    """The stack of decoder layers: the list of modules as long as the model is deep."""
    depth = model.config.get_text_config(decoder=True).num_hidden_layers
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == depth:
            return module
    return nn.ModuleList()  # nothing to time but what lies outside of layers


def is_norm(module: nn.Module) -> bool:
    """RMSNorm, LayerNorm and the many classes that are one of them."""
    return "Norm" in type(module).__name__
