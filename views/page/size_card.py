"""Sizing a deployment that runs nowhere: a published model on a card, divided as vLLM would.

Every figure is derived and says how on hover; the arithmetic is `engine/sizing.py`'s.
"""

from __future__ import annotations

import html
from typing import Any

import streamlit as st

from engine.config import ConfigError
from engine.sizing import CARDS, SHAPES, Deployment, Part, Sizing, gib, length_text, size
from views.page.words import plain, sentence

_COLUMNS = 3
_KEY = "gb-size-{}"
_ABOUT = (
    "Nothing of this runs here: every figure is derived, and says on hover from what. vLLM "
    "measures activations and graphs when it starts; here they are estimates."
)


def size_card() -> None:
    """Draw the choices and what becomes of the card's memory."""
    with st.expander("Size a card", key=_KEY.format("card-section")):
        st.caption(_ABOUT)
        try:
            sizing = size(Deployment.parse(_choices()))
        except ConfigError as error:
            st.error(plain(sentence(str(error))))
            return
        st.html(picture(sizing))


def _choices() -> dict[str, Any]:
    default = Deployment()
    columns = st.columns(_COLUMNS)
    with columns[0]:
        cards = {name: f"{name}, {card.stated}" for name, card in CARDS.items()}
        card = _choice("card", tuple(cards), cards.get)
        gpus = _choice("tensor_parallel_size", (1, 2, 4, 8))
        share = st.number_input(
            "gpu_memory_utilization",
            value=default.gpu_memory_utilization,
            step=0.01,
            format="%g",
            key=_KEY.format("gpu_memory_utilization"),
        )
    with columns[1]:
        model = _choice("model", tuple(SHAPES), index=tuple(SHAPES).index(default.model))
        dtype = _choice("dtype", ("bfloat16", "float16", "float32"))
        cache_dtype = _choice(
            "kv_cache_dtype", ("auto", "fp8", "int8_per_token_head", "bfloat16", "float16")
        )
    with columns[2]:
        found = {
            name: _number(name)
            for name in ("max_model_len", "max_num_batched_tokens", "max_num_seqs")
        }
    eager = st.checkbox("enforce_eager: no graphs", key=_KEY.format("enforce_eager"))
    return {
        "card": card,
        "model": model,
        "tensor_parallel_size": gpus,
        "gpu_memory_utilization": share,
        "dtype": dtype,
        "kv_cache_dtype": cache_dtype,
        "enforce_eager": eager,
        **found,
    }


def _choice(name: str, options: tuple[Any, ...], shown: Any = str, index: int = 0) -> Any:
    return st.selectbox(name, options, index, format_func=shown, key=_KEY.format(name))


def _number(name: str) -> int | None:
    placeholder = "all that fits" if name == "max_model_len" else "vLLM's for the card"
    return st.number_input(name, value=None, step=1, placeholder=placeholder, key=_KEY.format(name))


# --- the picture -------------------------------------------------------------------------------


def picture(sizing: Sizing) -> str:
    """The budget as a bar to scale, its parts as a table, and what the cache is good for."""
    deployment = sizing.deployment
    gpus = deployment.tensor_parallel_size
    title = f"{deployment.model} on {f'each of {gpus} × ' if gpus > 1 else ''}{deployment.card}"
    source = f"From the config of {SHAPES[deployment.model].config}."
    return (
        f'<div class="gb-size"><h4>{html.escape(title)}</h4>{_bar(sizing)}'
        f"<table>{''.join(_row(part, sign) for part, sign in _lines(sizing))}</table>"
        f"{_outcome(sizing)}<small>{html.escape(source)}</small></div>"
    )


def _lines(sizing: Sizing) -> list[tuple[Part, str]]:
    return [(sizing.budget, ""), *((part, "−") for part in sizing.taken), (sizing.available, "=")]


def _bar(sizing: Sizing) -> str:
    """What is taken, and the cache; where that is more than the budget, a line says where it ends.

    It is as long as the larger of the two.
    """
    parts = [*sizing.taken, sizing.available]
    shown = [part for part in parts if part.num_bytes > 0]
    whole = max(sizing.budget.num_bytes, sum(part.num_bytes for part in shown))
    pieces = "".join(
        f'<i data-part="{html.escape(part.name)}" style="width:{part.num_bytes / whole:.3%}" '
        f'title="{html.escape(_hover(part))}"></i>'
        for part in shown
    )
    end = sizing.budget.num_bytes / whole
    over = f'<b style="left:{end:.3%}" title="here the budget ends"></b>' if end < 1 else ""
    return f'<div class="gb-size-bar" aria-hidden="true">{pieces}{over}</div>'


def _row(part: Part, sign: str) -> str:
    name = html.escape(part.name)
    return (
        f'<tr><th scope="row"><i data-part="{name}" aria-hidden="true"></i>{name}</th>'
        f"<td>{sign}</td><td>{_figure(gib(part.num_bytes) + ' GiB', part.how)}</td></tr>"
    )


def _outcome(sizing: Sizing) -> str:
    if sizing.problem:
        return f'<p class="gb-size-problem" role="alert">{html.escape(sizing.problem)}</p>'
    cache, per_token = sizing.cache, sizing.bytes_per_token
    longest = f"{cache.max_model_len:,}"
    blocks = _figure(
        f"{cache.num_blocks:,} blocks",
        f"{sizing.available.num_bytes:,} bytes ÷ ({per_token.num_bytes:,} a token × "
        f"block_size {cache.block_size}), rounded down",
    )
    share = f"{cache.num_blocks:,} blocks ÷ ceil({longest} ÷ {cache.block_size})"
    tokens = _figure(f"{cache.num_tokens:,} tokens", f"{longest} × {share}")
    concurrency = _figure(f"{cache.max_concurrency:.2f}", share)
    return (
        f"<p>At {_figure(f'{per_token.num_bytes:,} bytes', per_token.how)} a token, the KV cache "
        f"is {blocks}: {tokens}, or {concurrency} requests of {longest} tokens at once.</p>"
        f"<p>{html.escape(length_text(sizing))}</p>"
    )


def _figure(text: str, how: str) -> str:
    return f'<span class="gb-size-figure" title="{html.escape(f"derived: {how}")}">{text}</span>'


def _hover(part: Part) -> str:
    return f"{part.name} {gib(part.num_bytes)} GiB, derived: {part.how}"
