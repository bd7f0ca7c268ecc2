"""Expressions and texts: what they can say, and that they cannot say anything else."""

from __future__ import annotations

import pytest

from lessons.expressions import Expression, ExpressionError, Scope, Template
from lessons.probes import Moment, ProbeError
from lessons.text import boxes, render
from tests.lessons.small import recorded

SCOPE = Scope({"n": 21, "size": 4, "given": 3})
LABELS = {"scheduler": "The Scheduler"}


def value(text: str, scope: Scope = SCOPE) -> object:
    return Expression.parse(text).value(scope)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n // size", 5),
        ("ceil(n / size)", 6),
        ("=n % size", 1),
        ("-n + 2 * size", -13),
        ("given == 3 and n > 20", True),
        ("not (given != 3 or n < 20)", True),
        ("'few' if n < 10 else 'many'", "many"),
        ("max(n, size) - min(n, size)", 17),
        ("1 < 2 <= 2", True),
    ],
)
def test_an_expression_has_its_value(text: str, expected: object) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "n.__class__",
        "(lambda: 1)()",
        "[x for x in (1, 2)]",
        "9 ** 9 ** 9",
        "n := 3",
        "open('x')",
        "f'{n}'",
        "None",
        "n n",
        "",
        "(" * 500,
    ],
)
def test_nothing_else_is_an_expression(text: str) -> None:
    with pytest.raises(ExpressionError):
        Expression.parse(text)


@pytest.mark.parametrize("text", ["n / 0", "'a' * 99", "m", "n[0]", "ceil('a')", "blocks('r0')"])
def test_what_has_no_value_says_so(text: str) -> None:
    with pytest.raises(ExpressionError):
        value(text)


def test_an_expression_knows_what_it_asks_for() -> None:
    expression = Expression.parse("blocks('r0') + ceil(n / size)")
    assert expression.names == {"n", "size"}
    assert expression.live
    assert not Expression.parse("ceil(n)").live


def test_a_text_has_its_values_and_its_links() -> None:
    trace = recorded("02-block-boundary")
    scope = Scope(SCOPE.values, Moment.of(trace, trace.next_seq - 1))
    text = Template.parse(
        "[[scheduler]] and [[scheduler|it]] gave {{count('blocks_allocated', 'r0')}} of {{n}}: "
        "[[request r0]], [[block {{n}}|that one]], [[moment {{seq('request_arrived', 'r1')}}|then]]"
    )
    seq = scope.moment.last("request_arrived", "r1").seq if scope.moment else -1
    assert render(text, scope, LABELS, lambda found: f"<{found}>") == (
        "[The Scheduler](#gb-box-scheduler) and [it](#gb-box-scheduler) gave <2> of 21: "
        "[request r0](#gb-request-r0), [that one](#gb-block-21), "
        f"[then](#gb-moment-{trace.header.trace_id}-{seq})"
    )
    assert boxes(text) == ["scheduler", "scheduler"]


def test_what_the_log_says_is_no_markdown() -> None:
    text = Template.parse("{{fact('request_arrived', 'request')}}")
    trace = recorded("02-block-boundary")
    scope = Scope({}, Moment.of(trace, trace.next_seq - 1))
    assert render(text, scope, {}) == "r5"
    assert render(text, scope, {}, lambda found: f"*{found}*") == "*r5*"


def test_numbers_are_written_for_people() -> None:
    text = Template.parse("{{n * 1000}} {{n / size}} {{'x' if n else 'y'}} {{n > 3}}")
    assert render(text, SCOPE, {}) == "21,000 5.25 x yes"


def test_a_card_is_sized_without_a_log() -> None:
    def value(text: str) -> object:
        return Expression.parse(text).value(Scope({"model": "Llama-3-8B"}))

    assert value("on_card('kv_bytes_per_token', 'RTX 4090', model)") == 131_072
    fp8 = "on_card('num_blocks', 'A100', model, 'kv_cache_dtype', 'fp8')"
    assert value(f"{fp8} // on_card('num_blocks', 'A100', model)") == 2
    assert value("on_card('starts', 'RTX 4090', model, 'gpu_memory_utilization', 0.5)") == 0
    assert not Expression.parse(fp8).live  # of no engine: it can be no answer by itself
    with pytest.raises(ExpressionError, match="card: must be"):
        value("on_card('num_blocks', 'RTX 9090', model)")
    with pytest.raises(ProbeError, match="there is no figure of a card 'blocks'; there are"):
        value("on_card('blocks', 'H100', model)")
    with pytest.raises(ExpressionError, match="the option 'dtype' has no value"):
        value("on_card('num_blocks', 'H100', model, 'dtype')")
