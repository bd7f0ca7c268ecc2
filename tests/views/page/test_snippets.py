"""The curl line and the Python snippet: they are pasted as they stand, so they must be right."""

from __future__ import annotations

import ast
import json
import shlex

import pytest

from views.page.snippets import FALLBACK_URL, base_url, curl_line, python_snippet

KEY = "gb-a_b-c"


@pytest.mark.parametrize(
    ("url", "host", "expected"),
    [
        ("http://localhost:8501/", None, "http://localhost:8501"),
        ("https://box.example/some/path?x=1", "ignored", "https://box.example"),
        (None, "10.0.0.1:9000", "http://10.0.0.1:9000"),
        ("", None, FALLBACK_URL),
    ],
)
def test_base_url_is_the_browsers(url: str | None, host: str | None, expected: str) -> None:
    assert base_url(url, host) == expected


@pytest.mark.parametrize("model", ["tiny-random", 'it\'s "odd"; rm -rf $HOME'])
def test_the_curl_line_is_one_command_with_key_and_json(model: str) -> None:
    words = shlex.split(curl_line("http://h:1", KEY, model).replace("\\\n", " "))
    assert words[:3] == ["curl", "-N", "http://h:1/v1/chat/completions"]
    assert f"Authorization: Bearer {KEY}" in words
    body = json.loads(words[words.index("-d") + 1])
    assert body["model"] == model and body["stream"] is True


@pytest.mark.parametrize("model", ["tiny-random", 'it\'s "odd"'])
def test_the_snippet_is_python_with_key_and_address(model: str) -> None:
    source = python_snippet("http://h:1", KEY, model)
    constants = {n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant)}
    assert {"http://h:1/v1", KEY, model} <= constants
