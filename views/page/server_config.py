"""What the server must know of the page: Streamlit's settings, and what a browser may load."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import streamlit
from streamlit import config
from streamlit.logger import set_log_level

# The least that the page needs (all that is not named is refused). `blob:` is Streamlit's way of
# loading a component's script, inline styles are its way of styling. Charts are drawn into
# pictures through `blob:` and `data:`. Nothing comes from, or goes to, anywhere but this server.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self' blob: {inline_scripts}",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",  # its websocket and event streams too
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)


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


def content_security_policy() -> str:
    """What the page may load and run."""
    return _POLICY.format(inline_scripts=" ".join(_inline_script_hashes()))


def _inline_script_hashes() -> list[str]:
    """Of the scripts that Streamlit's own page carries, as a content security policy names them."""
    page = Path(streamlit.__file__).parent / "static" / "index.html"
    scripts = re.findall(r"<script>(.*?)</script>", page.read_text(encoding="utf-8"), re.DOTALL)
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    return [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
