"""Parts of a model whose code is known: each architecture has copies of its own of the same.

No box of the map.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CodeType
from typing import Any

from torch import nn


def replace(
    model: nn.Module, fits: Callable[[nn.Module], bool], make: Callable[[Any], nn.Module]
) -> None:
    """Put what `make` makes of it in place of each module of the model that fits."""
    for name in [name for name, module in model.named_modules() if fits(module)]:
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, make(model.get_submodule(name)))


def same_code(one: Any, other: Any, names: tuple[str, ...] = ()) -> bool:
    """Whether two functions do the same with the same names.

    `names` are those of functions beside them, which have to be the same as well.
    """
    one, other = inspect.unwrap(one), inspect.unwrap(other)
    return essence(one.__code__) == essence(other.__code__) and all(
        name in one.__globals__ and same_code(one.__globals__[name], other.__globals__[name])
        for name in names
    )


def essence(code: CodeType) -> tuple[object, ...]:
    """What a function does, whatever it is called and wherever it stands."""
    return code.co_code, code.co_names, code.co_consts, code.co_varnames, code.co_freevars
