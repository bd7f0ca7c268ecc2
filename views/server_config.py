"""Streamlit's own settings, wherever and however the server is started."""

from __future__ import annotations

from pathlib import Path

from streamlit import config
from streamlit.logger import set_log_level


def use_project_settings(app_file: str) -> None:
    """Have Streamlit read `.streamlit` beside app.py, as `streamlit run` does.

    Otherwise it looks in the current folder and beside the page's script, and a server started
    from elsewhere would have other colours and would send usage statistics.
    """
    if config._main_script_path is None:
        config._main_script_path = str(Path(app_file).resolve())


def warn_only() -> None:
    """No line for every request, unless `.streamlit/config.toml` names a level."""
    config.get_option("logger.level")  # reads the settings, which sets the level
    if not config.is_manually_set("logger.level"):
        set_log_level("warning")
