"""The engine's settings as a `vllm serve` command to copy, and such a command as a filled form."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from engine.async_llm import AsyncLLM
from engine.config import ConfigError
from engine.serve_command import ReadCommand, cautions, read_command, serve_command
from views.page.settings_fields import form_values
from views.page.state import Fields
from views.page.words import code, plain, sentence

_PASTED = "gb-settings-command"
_LEFT_OUT = "gb-settings-left-out"
_ABOUT = (
    "vLLM 0.26.0, started so, schedules and caches as this engine does. Left out are options whose "
    "default is the same for every model and device. Sampled text differs: vLLM draws other random "
    "numbers from the same seed."
)


def settings_command(llm: AsyncLLM, fill: Callable[[AsyncLLM], None]) -> None:
    """Draw the command of the engine as it is set, and a field for another one."""
    model = llm.model.name
    with st.expander("As a `vllm serve` command"):
        st.code(serve_command(llm.config, model), language="bash", wrap_lines=True)
        st.caption(" ".join((*map(plain, cautions(llm.config, model)), _ABOUT)))
        with st.form("settings-command", border=False):
            st.text_area(
                "Paste a command to fill the form above with",
                key=_PASTED,
                placeholder="vllm serve MODEL --max-num-seqs 4 --no-enable-prefix-caching",
                max_chars=20_000,
            )
            st.form_submit_button(
                "Fill the form", key="gb-settings-fill", on_click=fill, args=(llm,)
            )
        if said := st.session_state.get(_LEFT_OUT):
            st.markdown(said)


def fill_form(llm: AsyncLLM, form: Fields) -> tuple[str, str]:
    """Fill the form from the pasted command; return how that went, as a kind and a text."""
    st.session_state.pop(_LEFT_OUT, None)
    text = st.session_state.get(_PASTED) or ""
    try:
        found = read_command(text, llm.requested_config, llm.model.name)
    except ConfigError as error:
        return "error", plain(sentence(str(error).removeprefix("command: ")))
    form.renew(form_values(found.config))
    st.session_state[_LEFT_OUT] = _left_out(found)
    if not found.remarks:
        return "ok", "The form is filled from the command. Nothing is applied yet."
    return "warning", (
        "The form is filled from the command, except for what is listed below the command. "
        "Nothing is applied yet."
    )


def _left_out(found: ReadCommand) -> str:
    """What became of the parts of a command that are not in the form, as Markdown."""
    lines = []
    if found.remarks:
        lines.append("Not taken over, or otherwise than in vLLM:")
        lines.append("\n".join(f"- {code(r.written)}: {plain(r.text)}" for r in found.remarks))
    if found.kept:
        lines.append(f"Not named, so as the engine has it: {plain(', '.join(found.kept))}.")
    return "\n\n".join(lines)
