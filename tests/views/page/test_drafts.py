"""The composer's rules: what the fields become, and what is said where they cannot be sent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from views.page.drafts import (
    MAX_AT_ONCE,
    ComposerError,
    Draft,
    SamplingFields,
    compose,
    count,
    logit_bias,
    stop_strings,
    stop_tokens,
)


def test_one_request_keeps_its_line_breaks() -> None:
    (only,) = compose(Draft("a\nb\n"))
    assert only.prompt == "a\nb\n"
    assert only.params.temperature == 0.0


def test_lines_and_copies_multiply_in_order_and_blank_lines_are_none() -> None:
    got = compose(Draft("a\n\n  \nb", split="lines", copies=2, priority=3))
    assert [item.prompt for item in got] == ["a", "a", "b", "b"]
    assert {item.priority for item in got} == {3}
    salted = compose(Draft("a", copies=2, cache_salt=" s "))
    assert {item.cache_salt for item in salted} == {" s "} and {i.cache_salt for i in got} == {""}


def test_a_shared_beginning_is_put_in_front_of_a_prompt() -> None:
    assert compose(Draft("b", system="a "))[0].prompt == "a b"


def test_a_chat_has_a_system_message_only_where_one_was_written() -> None:
    user = {"role": "user", "content": "b"}
    assert compose(Draft("b", mode="chat", system="  "))[0].prompt == [user]
    system = {"role": "system", "content": "a"}
    assert compose(Draft("b", mode="chat", system=" a\n"))[0].prompt == [system, user]


@pytest.mark.parametrize("split", ["one", "lines"])
def test_nothing_to_send(split: str) -> None:
    with pytest.raises(ComposerError, match="write a prompt"):
        compose(Draft(" \n ", split=split))  # type: ignore[arg-type]


@pytest.mark.parametrize("copies", [None, 0, -1])
def test_copies_must_be_some(copies: int | None) -> None:
    with pytest.raises(ComposerError, match="copies is .*; it must be 1 or more"):
        compose(Draft("a", copies=copies))


def test_too_many_at_once_names_both_factors() -> None:
    assert len(compose(Draft("a\nb", split="lines", copies=MAX_AT_ONCE // 2))) == MAX_AT_ONCE
    with pytest.raises(ComposerError, match=r"2 lines times 33 copies make 66 .* 64"):
        compose(Draft("a\nb", split="lines", copies=33))
    with pytest.raises(ComposerError, match=r"5 copies times 13 sequences make 65 .* 64"):
        compose(Draft("a", copies=5, n=13))


def test_sequences_need_a_temperature() -> None:
    with pytest.raises(ComposerError, match="Requests: n: 3 sequences would all be the same"):
        compose(Draft("a", n=3))
    (one,) = compose(Draft("a", n=3, sampling=SamplingFields(temperature=1.0)))
    assert one.params.n == 3


def test_empty_sampling_fields_are_the_engines_defaults() -> None:
    fields = SamplingFields(None, None, None, None, None, None)
    params = compose(Draft("a", sampling=fields))[0].params
    assert (params.max_tokens, params.temperature, params.top_p, params.top_k) == (16, 1.0, 1.0, 0)
    assert params.seed is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("temperature", -0.1),
        ("top_p", 0.0),
        ("top_k", -1),
        ("seed", 2**63),
        ("min_p", 1.5),
        ("repetition_penalty", 0.0),
        ("presence_penalty", 2.5),
        ("frequency_penalty", -2.5),
    ],
)
def test_a_bad_number_is_named_with_its_field_and_value(field: str, value: float) -> None:
    fields = replace(SamplingFields(), **{field: value})  # type: ignore[arg-type]
    with pytest.raises(ComposerError, match=rf"{field}: .*got {value}"):
        compose(Draft("a", sampling=fields))


def test_stop_strings_are_lines_with_escapes() -> None:
    assert stop_strings("END\n\n\\n\n a ") == ("END", "\n", " a ")


def test_stop_tokens_take_commas_and_spaces() -> None:
    assert stop_tokens("2, 198 7") == (2, 198, 7)
    assert stop_tokens("") == ()


@pytest.mark.parametrize("text", ["x", "1.5", "-2", "2;3", "²"])
def test_a_stop_token_that_is_none_is_shown(text: str) -> None:
    with pytest.raises(ComposerError, match="no token id; write whole numbers"):
        stop_tokens(text)


def test_count_is_what_compose_makes() -> None:
    sampling = SamplingFields(temperature=1.0)
    draft = Draft("a\n\nb", split="lines", copies=3, n=2, sampling=sampling)
    assert count(draft) == sum(one.params.n for one in compose(draft)) == 12
    assert count(replace(draft, n=None)) == len(compose(replace(draft, n=None))) == 6
    assert count(Draft("")) == 0
    assert count(Draft("a", copies=None)) == 0


def test_a_bias_is_a_token_id_with_a_number() -> None:
    assert logit_bias("198: -100, 7:2.5\n260 : +1") == {198: -100.0, 7: 2.5, 260: 1.0}
    assert logit_bias(" ,\n") is None
    fields = SamplingFields(logit_bias="5: 300")
    assert compose(Draft("a", sampling=fields))[0].params.logit_bias == {5: 100.0}


@pytest.mark.parametrize(
    "text", ["x: 1", "5", "5: y", "-5: 1", "5 1", "5:", "5: nan", "5: 1, 5: 2"]
)
def test_a_bias_that_is_none_is_shown(text: str) -> None:
    with pytest.raises(ComposerError, match="Sampling: logit_bias"):
        compose(Draft("a", sampling=SamplingFields(logit_bias=text)))
