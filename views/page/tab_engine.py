"""Whether this tab has an engine yet: how far the model is, or why there is none and what helps."""

from __future__ import annotations

from typing import NamedTuple

import streamlit as st

from engine.async_llm import AsyncLLM, EngineError
from engine.background_model import ModelNotReady, ModelStatus
from engine.config import ConfigError
from engine.sessions import registry
from views.page import state
from views.page.guard import guarded
from views.page.words import plain, sentence

_EVERY_SECONDS = 0.5


class Found(NamedTuple):
    """This tab's engine, or what keeps it from having one."""

    llm: AsyncLLM | None = None
    loading: bool = False
    trouble: str = ""


def find_engine(key: str | None) -> Found:
    """Return the engine of this key; without a key, say at least how far the model is."""
    if key is None:
        return _without_engine(registry().model_status())
    try:
        return Found(llm=registry().get(key))
    except ModelNotReady as error:
        return _without_engine(error.status)
    except (EngineError, ConfigError) as error:
        return Found(trouble=str(error))


def _without_engine(status: ModelStatus) -> Found:
    if status.stage == "failed":
        return Found(
            trouble=f"There is no model to run: {plain(status.message)}. Mend that, or name "
            "another model (`MODEL=`), and start the server again. The map can be read all the "
            "same."
        )
    if status.stage == "ready":
        return Found()
    registry().start()  # it is, where the server was started as it should be
    return Found(loading=True)


def model_status(found: Found, key: str | None) -> None:
    """Show what keeps the engine from being there; nothing where it is."""
    if found.trouble:
        st.error(found.trouble)
    elif found.llm is None:
        _wait(found.loading, key)
    else:
        _about_engine(found.llm, key)


@st.fragment(run_every=_EVERY_SECONDS)
def _wait(loading: bool, key: str | None) -> None:
    """Look again every half a second, and draw the page anew once there is more to show.

    Also for the key: one that the browser tells while the page is being drawn anew can get lost,
    but every run of a fragment brings what the browser knows.
    """
    status = registry().model_status()
    over = status.stage in ("ready", "failed")
    if (loading and over) or state.session_key() != key:
        st.rerun()
    if not over:
        fraction = min(1.0, status.done / status.total) if status.total else 0.0
        said = plain(sentence(status.message))
        st.progress(fraction, text=f"{said} The map can be read meanwhile.")


def _about_engine(llm: AsyncLLM, key: str | None) -> None:
    notice = registry().notice(key) if key else None
    if notice:
        st.info(notice)
    if rounding := _rounding(llm):
        st.caption(rounding)
    if llm.failed is not None:
        st.error(plain(sentence(llm.failed)))
        st.button("Reset the engine", key="gb-reset-failed", on_click=_reset)


def _rounding(llm: AsyncLLM) -> str:
    """Return what a request's text may depend on; nothing where all is float32."""
    facts = llm.trace.header.model
    weights, cache = facts["dtype"], facts["kv_cache_dtype"]
    if facts["quantization"]:
        return (
            f":material/warning: Your engine rounds weights ({facts['quantization']}), with keys "
            f"and values in {cache}: a request may get another text than in float32. *Beside "
            "fp32*, in the KV cache's panel, measures it."
        )
    if weights == cache == "float32":
        return ""
    if weights == "float32":
        return (
            f":material/warning: Your engine rounds keys and values to {cache}: a request may get "
            "another text than in float32. *Beside fp32*, in the KV cache's panel, measures it."
        )
    return (
        f":material/warning: Your engine computes in {weights}, with keys and values in {cache}: a "
        "request's text may change with the batch that it runs in, since rounding does."
    )


@guarded
def _reset() -> None:
    llm = find_engine(state.session_key()).llm
    if llm is not None and llm.failed is not None:  # it may have been put to rest since
        llm.reset()
