"""Full sampling over HTTP: n, penalties, biases, log-probabilities, echo, as clients see them."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest
import torch

from engine.api.logprobs import token_bytes
from engine.async_llm import AsyncLLM
from tests.api.live_server import Server, blocks_in_use
from tests.api.test_openai_api import MODEL, error_of, openai_client
from tests.waiting import wait_until

ASKED: dict[str, Any] = {"model": MODEL, "max_tokens": 6, "seed": 5}
CHAT: Any = [{"role": "user", "content": "hi"}]


def own_logprobs(engine: AsyncLLM, token_ids: list[int]) -> list[float]:
    """Of each token but the first, by one forward of the model as Transformers runs it."""
    model: Any = engine.model.model
    with torch.no_grad():
        logits = model(torch.tensor([token_ids])).logits[0]
    rows = logits.log_softmax(-1)
    return [float(rows[place, token]) for place, token in enumerate(token_ids[1:])]


def ids_of(text: str) -> list[int]:
    return [3 + byte for byte in text.encode()]  # the tiny model has a token a byte


def test_the_parameters_reach_the_engine_as_they_are(server: Server) -> None:
    key, engine = server.session()
    engine.run()
    given = {
        "min_p": 0.25,
        "repetition_penalty": 1.5,
        "presence_penalty": -2,
        "frequency_penalty": 0.75,
        "min_tokens": 2,
        "logit_bias": {"40": -3, "41": 2.5},
        "logprobs": 2,
        "prompt_logprobs": 1,
    }
    with server.client(key) as client:
        client.post("/v1/completions", json={"prompt": "a", "max_tokens": 3, **given})
        chat = {**given, "logprobs": True, "top_logprobs": 2}
        client.post("/v1/chat/completions", json={"messages": CHAT, "max_tokens": 3, **chat})
    for name in ("r0", "r1"):
        sampling = engine.outputs.states[name].request.sampling_params.model_dump()
        assert {field: sampling[field] for field in given} == {
            **given,
            "logit_bias": {40: -3.0, 41: 2.5},
        }


def test_a_bias_and_min_p_choose_the_text(server: Server) -> None:
    client = openai_client(server)
    bias = {str(ids_of("x")[0]): 100}
    biased = client.completions.create(prompt="a", logit_bias=bias, temperature=0, **ASKED)
    assert biased.choices[0].text == "xxxxxx"
    greedy = client.completions.create(prompt="a", temperature=0, **ASKED)
    only_best = client.completions.create(prompt="a", extra_body={"min_p": 1}, **ASKED)
    assert only_best.choices[0].text == greedy.choices[0].text


@pytest.mark.parametrize("stream", [False, True])
def test_each_prompt_has_its_n_choices_in_order(server: Server, stream: bool) -> None:
    client = openai_client(server)
    prompts = ["ab", "xyz"]
    alone = [
        client.completions.create(prompt=prompt, **{**ASKED, "seed": 5 + number}).choices[0].text
        for prompt in prompts
        for number in range(3)
    ]
    assert len(set(alone)) == 6
    if stream:
        texts, ends = ["" for _ in alone], ["" for _ in alone]
        answer = client.completions.create(
            prompt=prompts, n=3, stream=True, stream_options={"include_usage": True}, **ASKED
        )
        for chunk in answer:
            for choice in chunk.choices:
                texts[choice.index] += choice.text
                ends[choice.index] += choice.finish_reason or ""
        usage = chunk.usage
        assert ends == ["length"] * 6
    else:
        whole = client.completions.create(prompt=prompts, n=3, **ASKED)
        assert [choice.index for choice in whole.choices] == list(range(6))
        texts, usage = [choice.text for choice in whole.choices], whole.usage
    assert texts == alone
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (5, 36)


def test_a_chat_has_n_choices_each_with_its_role(server: Server) -> None:
    client = openai_client(server)
    whole = client.chat.completions.create(messages=CHAT, n=2, **ASKED)
    assert [choice.index for choice in whole.choices] == [0, 1]
    texts = ["", ""]
    chunks = list(client.chat.completions.create(messages=CHAT, n=2, stream=True, **ASKED))
    opened = [chunk.choices[0].index for chunk in chunks if chunk.choices[0].delta.role]
    for chunk in chunks:
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert opened == [0, 1]
    assert texts == [choice.message.content for choice in whole.choices]


def test_log_probabilities_of_a_completion_are_the_model_s_own(server: Server) -> None:
    key, engine = server.session()
    engine.run()
    answer = openai_client(server, key).completions.create(prompt="once", logprobs=3, **ASKED)
    choice = answer.choices[0]
    expected = own_logprobs(engine, engine.outputs.states["r0"].request.all_token_ids)[-6:]
    told = choice.logprobs
    assert told is not None and told.token_logprobs is not None and told.top_logprobs is not None
    assert told.token_logprobs == pytest.approx(expected, abs=1e-4)
    for token, logprob, top in zip(
        told.tokens or (), told.token_logprobs, told.top_logprobs, strict=True
    ):
        assert logprob is not None and token in top and len(top) <= 4
        assert top[token] == logprob or token == "\ufffd"  # the text of many a token


def test_the_pieces_of_a_stream_bring_the_log_probabilities_of_the_whole(server: Server) -> None:
    client = openai_client(server)
    arguments: Any = {"prompt": "once", "logprobs": 1, "echo": True, "n": 2, **ASKED}
    whole = client.completions.create(**arguments)
    told: list[dict[str, list[Any]]] = [{}, {}]
    for chunk in client.completions.create(stream=True, **arguments):
        for choice in chunk.choices:
            if choice.logprobs is not None:
                for name, items in choice.logprobs.model_dump().items():
                    told[choice.index].setdefault(name, []).extend(items)
    for choice in whole.choices:
        assert choice.logprobs is not None
        expected = choice.logprobs.model_dump()
        found = told[choice.index]
        assert found["tokens"] == expected["tokens"] and len(found["tokens"]) == 10
        assert found["text_offset"] == expected["text_offset"]
        assert found["token_logprobs"][0] is None and found["top_logprobs"][0] is None
        assert found["token_logprobs"][1:] == pytest.approx(
            expected["token_logprobs"][1:], abs=1e-4
        )


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_alone_can_be_rated(server: Server, stream: bool) -> None:
    key, engine = server.session()
    engine.run()
    client = openai_client(server, key)
    prompt = "a\u00e9 b"  # the second character is two tokens
    answer: Any = client.completions.create(
        model=MODEL, prompt=prompt, max_tokens=0, echo=True, logprobs=0, stream=stream
    )
    choice = (list(answer)[-1] if stream else answer).choices[0]
    assert choice.text == prompt and choice.finish_reason == "length"
    told = choice.logprobs
    assert told.tokens == ["a", "\ufffd", "\ufffd", " ", "b"]
    assert told.text_offset == [0, 1, 1, 2, 3]
    assert told.token_logprobs[1:] == pytest.approx(own_logprobs(engine, ids_of(prompt)), abs=1e-4)
    assert told.token_logprobs[0] is None and told.top_logprobs[0] is None
    assert [len(top) for top in told.top_logprobs[1:]] == [1] * 4


def test_an_echo_without_log_probabilities_is_text(server: Server) -> None:
    client = openai_client(server)
    plain = client.completions.create(prompt=["ab", "c"], n=2, **ASKED)
    echoed = client.completions.create(prompt=["ab", "c"], n=2, echo=True, **ASKED)
    expected = [
        prompt + choice.text
        for prompt, choice in zip(["ab", "ab", "c", "c"], plain.choices, strict=True)
    ]
    assert [choice.text for choice in echoed.choices] == expected
    assert echoed.choices[0].logprobs is None and echoed.usage == plain.usage
    ids = client.completions.create(prompt=ids_of("ab"), echo=True, **ASKED)
    assert ids.choices[0].text.startswith("ab")


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_of_a_chat_spell_its_text(server: Server, stream: bool) -> None:
    client = openai_client(server)
    answer: Any = client.chat.completions.create(
        messages=CHAT, logprobs=True, top_logprobs=4, stream=stream, **ASKED
    )
    if stream:
        choices = [choice for chunk in answer for choice in chunk.choices]
        content = [
            item
            for choice in choices
            for item in (choice.logprobs.content if choice.logprobs else [])
        ]
        text = "".join(choice.delta.content or "" for choice in choices)
    else:
        content, text = answer.choices[0].logprobs.content, answer.choices[0].message.content
    assert len(content) == 6
    assert bytes(byte for item in content for byte in item.bytes).decode(errors="replace") == text
    for item in content:
        top = [other.logprob for other in item.top_logprobs]
        assert len(top) == 4 and top == sorted(top, reverse=True)
        assert item.logprob <= top[0] <= 0


def test_a_chat_without_top_logprobs_has_the_tokens_own(server: Server) -> None:
    client = openai_client(server)
    answer = client.chat.completions.create(messages=CHAT, logprobs=True, **ASKED)
    told = answer.choices[0].logprobs
    assert told is not None and told.content is not None
    assert [item.top_logprobs for item in told.content] == [[]] * 6
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(messages=CHAT, top_logprobs=2, **ASKED)
    assert caught.value.param == "top_logprobs"


def test_the_prompt_s_own_log_probabilities_are_vllm_s_extension(server: Server) -> None:
    key, engine = server.session()
    engine.run()
    expected = own_logprobs(engine, ids_of("once"))
    with server.client(key) as client:
        body = {"prompt": ["once", "b"], "n": 2, "max_tokens": 1, "prompt_logprobs": 2}
        choices = client.post("/v1/completions", json=body).json()["choices"]
        chat = {"messages": CHAT, "max_tokens": 1, "prompt_logprobs": 0}
        told = client.post("/v1/chat/completions", json=chat).json()["prompt_logprobs"]
    assert choices[2]["prompt_logprobs"] == choices[3]["prompt_logprobs"] == [None]
    assert choices[0]["prompt_logprobs"] == choices[1]["prompt_logprobs"]
    first, *others = choices[0]["prompt_logprobs"]
    assert first is None
    for token, logprob, items in zip(ids_of("once")[1:], expected, others, strict=True):
        own = items[str(token)]
        assert own["logprob"] == pytest.approx(logprob, abs=1e-4)
        assert own["decoded_token"] == chr(token - 3) and own["rank"] >= 1
        assert {1, 2} <= {item["rank"] for item in items.values()} and len(items) <= 3
    assert told[0] is None and [len(items) for items in told[1:]] == [1] * 20


def test_no_tokens_are_asked_for_only_with_an_echo(server: Server) -> None:
    with server.client() as client:
        answer = client.post("/v1/completions", json={"prompt": "a", "max_tokens": 0})
        assert answer.status_code == 400
        assert error_of(answer)["param"] == "max_tokens"
        chat = {"messages": CHAT, "max_tokens": 0}
        assert client.post("/v1/chat/completions", json=chat).status_code == 400


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_takes_all_its_sequences_along(
    server: Server, stream: bool
) -> None:
    key, engine = server.session()
    engine.run(50)
    with server.client(key) as client, pytest.raises(httpx.ReadTimeout):
        body = {"prompt": ["a", "b"], "n": 3, "max_tokens": 900, "ignore_eos": True}
        timeout = httpx.Timeout(20, read=0.6)
        with client.stream(
            "POST", "/v1/completions", json={**body, "stream": stream}, timeout=timeout
        ) as answer:
            wait_until(lambda: engine.num_unfinished == 6)
            engine.pause()
            answer.read()
    wait_until(lambda: engine.num_unfinished == 0)
    assert blocks_in_use(engine) == 0
    requests = engine.trace.state()["requests"]
    assert {request["finish_reason"] for request in requests.values()} == {"abort"}
    assert set(requests) == {f"{index}_{parent}" for parent in ("r0", "r1") for index in range(3)}


def test_a_part_of_a_character_has_bytes_of_its_own() -> None:
    class ByteLevel:
        """Writes bytes as GPT-2 and its like do."""

        def decode(self, token_ids: list[int], **_: object) -> str:
            return ["\ufffd", "a", "\ufffd", "\ufffd"][token_ids[0]]

        def convert_ids_to_tokens(self, token_id: int) -> str:
            return ["\u00f0\u0141\u013a", "a", "<0xE2>", "\ufffd"][token_id]

    tokenizer: Any = ByteLevel()
    told = [token_bytes(tokenizer, token_id) for token_id in range(4)]
    assert told == [b"\xf0\x9f\x98", b"a", b"\xe2", None]
