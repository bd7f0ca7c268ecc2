"""What is pasted elsewhere to reach this tab's engine: a curl line and a Python program."""

from __future__ import annotations

import json
import shlex
from urllib.parse import urlsplit

FALLBACK_URL = "http://localhost:8501"


def base_url(page_url: str | None, host: str | None = None) -> str:
    """Return scheme and host as the browser sees them; the API lies beside the page."""
    parts = urlsplit(page_url or "")
    if parts.scheme in ("http", "https") and parts.netloc:
        return f"{parts.scheme}://{parts.netloc}"
    return f"http://{host}" if host else FALLBACK_URL


def curl_line(base: str, key: str, model: str) -> str:
    """Return one line for a POSIX shell that streams an answer; `-N` shows it as it comes."""
    body = json.dumps(
        {
            "model": model,
            "stream": True,
            "max_tokens": 16,
            "messages": [{"role": "user", "content": "Name three colours."}],
        }
    )
    parts = (
        f"curl -N {shlex.quote(base + '/v1/chat/completions')}",
        f"-H {shlex.quote('Authorization: Bearer ' + key)}",
        "-H 'Content-Type: application/json'",
        f"-d {shlex.quote(body)}",
    )
    return " \\\n  ".join(parts)


def python_snippet(base: str, key: str, model: str) -> str:
    """Return a program for the `openai` package."""
    return f"""from openai import OpenAI

client = OpenAI(base_url={base + "/v1"!r}, api_key={key!r})
stream = client.chat.completions.create(
    model={model!r},
    messages=[{{"role": "user", "content": "Name three colours."}}],
    max_tokens=16,
    stream=True,
)
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="", flush=True)
"""
