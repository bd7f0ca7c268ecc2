"""JSON by the letter: what other readers would read otherwise is refused, and said shortly."""

from __future__ import annotations

import json

import pytest

from engine.strict_json import StrictJsonError, loads


def test_what_is_json_is_read() -> None:
    text = '{"a": [1, -2.5, 1e308, true, null, "\\u0000\\u001b[31m \u2028"], "b": {"a": {}}}'
    assert loads(text) == json.loads(text) == loads(text.encode())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' is there more than once"),
        ('{"' + "k" * 10_000 + '": 1, "' + "k" * 10_000 + '": 2}', r"kkk\.\.\.' is there more"),
        (r'{"\u001b[31m": 1, "\u001b[31m": 2}', r"the key '\\x1b\[31m' is there"),
        (r'{"\ud800": 1, "\ud800": 2}', r"the key '\\ud800' is there"),
        ("[NaN]", "NaN is no number"),
        ("[-Infinity]", "-Infinity is no number"),
        ("[1e400]", "'1e400' is too large"),
        ("1" + "0" * 9_999, "too many digits"),
        ("1" * 10_000 + ".5", "is too large"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_what_is_none_is_refused_in_few_words(text: str, why: str) -> None:
    with pytest.raises(StrictJsonError, match=why) as error:
        loads(text)
    assert len(str(error.value)) < 200 and str(error.value).isprintable()


@pytest.mark.parametrize("text", ["", "{", "[1] [2]", "{'a': 1}", '["\0"]', "[01]", "\ufeff[]"])
def test_an_error_of_syntax_has_its_place(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        loads(text)
