"""/v1 as the openai client and plain HTTP see it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest

from engine.config import EngineConfig
from engine.events import RequestRefused
from engine.input_processor import TOKENIZING, InputProcessor
from engine.model_loader import load_model
from engine.reasons import PromptTextTooLong, PromptTooLong
from engine.records import Event
from engine.sessions import Sessions
from tests.api.live_server import Server, blocks_in_use, serving
from tests.waiting import PATIENCE_S, wait_until

MODEL = "tiny-random"


def openai_client(server: Server, key: str = "EMPTY") -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=PATIENCE_S
    )


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert "Traceback" not in error["message"]
    assert isinstance(error, dict)
    return error


def test_models_names_the_model_and_how_long_a_request_may_be(server: Server) -> None:
    models = openai_client(server).models.list().data
    assert [model.id for model in models] == [MODEL]
    assert openai_client(server).models.retrieve(MODEL).id == MODEL
    assert models[0].model_dump()["max_model_len"] == 2048


def test_completion_on_the_shared_engine(server: Server) -> None:
    answer = openai_client(server).completions.create(
        model=MODEL, prompt="once upon", max_tokens=7, temperature=0
    )
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (9, 7)
    assert answer.usage.total_tokens == 16
    assert answer.choices[0].finish_reason == "length"
    assert answer.object == "text_completion" and answer.id.startswith("cmpl-r")


def test_stream_brings_the_text_of_the_whole_answer(server: Server) -> None:
    client = openai_client(server)
    arguments: Any = {"model": MODEL, "prompt": "once upon", "max_tokens": 12, "temperature": 0}
    whole = client.completions.create(**arguments)
    chunks = list(client.completions.create(stream=True, **arguments))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == "length"
    assert all(chunk.choices[0].finish_reason is None for chunk in chunks[:-1])
    assert all(chunk.usage is None for chunk in chunks)


def test_stream_ends_with_the_usage_where_it_is_wanted(server: Server) -> None:
    chunks = list(
        openai_client(server).chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "hi"}],
            max_completion_tokens=5,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 5
    assert all(chunk.usage is None for chunk in chunks[:-1])


def data_of(answer: httpx.Response) -> list[Any]:
    """What a stream brings, without its end mark."""
    lines = [line[6:] for line in answer.iter_lines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_a_chat_begins_to_stream_with_its_first_token(server: Server) -> None:
    key, engine = server.session()
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    chat = "/v1/chat/completions"
    with server.client(key) as client, client.stream("POST", chat, json=body) as answer:
        engine.reset()  # it was paused, and has made no token
        (only,) = data_of(answer)
    assert "reset" in only["error"]["message"]


def test_each_token_of_a_stream_has_a_chunk_text_or_none(server: Server) -> None:
    first_byte = str(3 + "\N{GRINNING FACE}".encode()[0])  # the tiny model has a token a byte
    body = {"logit_bias": {first_byte: 100}, "max_tokens": 4, "stream": True}
    chat = {"messages": [{"role": "user", "content": "hi"}], **body}
    with server.client() as client:
        with client.stream("POST", "/v1/completions", json={"prompt": "a", **body}) as answer:
            texts = [chunk["choices"][0]["text"] for chunk in data_of(answer)]
        with client.stream("POST", "/v1/chat/completions", json=chat) as answer:
            deltas = [chunk["choices"][0]["delta"] for chunk in data_of(answer)]
    assert len(texts) == 4 and "" in texts
    assert [delta["content"] for delta in deltas] == ["", *texts]


def test_a_stream_can_have_the_usage_so_far_of_each_choice(server: Server) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {"n": 2, "max_tokens": 3, "stream": True, "stream_options": options}
    chat, asked = "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], **body}
    with server.client() as client, client.stream("POST", chat, json=asked) as answer:
        *chunks, last = data_of(answer)
    told: list[list[int]] = [[], []]
    for chunk in chunks:
        told[chunk["choices"][0]["index"]].append(chunk["usage"]["completion_tokens"])
        assert chunk["usage"]["prompt_tokens"] == 21
    assert told == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert (last["usage"]["prompt_tokens"], last["usage"]["completion_tokens"]) == (21, 6)


def test_chat_uses_the_template_and_takes_text_parts(server: Server) -> None:
    client = openai_client(server)
    plain = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "hi"}], max_tokens=6, temperature=0
    )
    parts = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        max_tokens=6,
        temperature=0,
    )
    assert plain.choices[0].message.content == parts.choices[0].message.content
    assert plain.usage is not None
    # <|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n, a token a byte or special.
    assert plain.usage.prompt_tokens == 21


def test_token_ids_and_several_prompts(server: Server) -> None:
    client = openai_client(server)
    one = client.completions.create(model=MODEL, prompt="ab", max_tokens=4, temperature=0)
    ids = client.completions.create(
        model=MODEL, prompt=[3 + ord("a"), 3 + ord("b")], max_tokens=4, temperature=0
    )
    many = client.completions.create(model=MODEL, prompt=["xyz", "ab"], max_tokens=4, temperature=0)
    assert ids.choices[0].text == one.choices[0].text
    assert [choice.index for choice in many.choices] == [0, 1]
    assert many.choices[1].text == one.choices[0].text
    assert many.usage is not None and many.usage.prompt_tokens == 5


def test_a_seed_repeats_and_a_stop_string_ends(server: Server) -> None:
    client = openai_client(server)
    arguments: Any = {"model": MODEL, "prompt": "q", "max_tokens": 40, "seed": 11}
    first = client.completions.create(**arguments).choices[0].text
    assert client.completions.create(**arguments).choices[0].text == first
    stop = next(letter for letter in first[5:] if letter.isascii() and letter.isalnum())
    stopped = client.completions.create(stop=stop, **arguments).choices[0]
    assert stopped.finish_reason == "stop"
    assert stopped.text == first[: first.index(stop)]


def test_cached_tokens_of_a_repeated_prompt_are_told(server: Server) -> None:
    key, engine = server.session()
    engine.run()
    client = openai_client(server, key)
    usages = [
        client.completions.create(model=MODEL, prompt="p" * 40, max_tokens=1).usage
        for _ in range(2)
    ]
    cached = [usage.prompt_tokens_details.cached_tokens for usage in usages]  # type: ignore[union-attr]
    assert cached == [0, 32]


def test_a_session_s_key_leads_to_its_engine(server: Server) -> None:
    key, engine = server.session()
    _, other = server.session()
    engine.run()
    before = len(other.trace.records)
    with server.client(key) as client:
        answer = client.post("/v1/completions", json={"prompt": "hello", "max_tokens": 3})
    assert answer.headers["x-request-id"] == "r0"
    request = engine.trace.state()["requests"]["r0"]
    assert request["source"] == "http" and request["prompt"] == "hello"
    assert len(other.trace.records) == before and other.trace.state()["requests"] == {}


def test_unknown_key_is_a_401_that_does_not_repeat_it(server: Server) -> None:
    with pytest.raises(openai.AuthenticationError) as caught:
        openai_client(server, "sk-invented").models.list()
    assert "sk-invented" not in str(caught.value)
    with server.client() as client:
        answer = client.get("/v1/models", headers={"Authorization": "Basic abc"})
    assert answer.status_code == 401
    assert error_of(answer)["code"] == "invalid_api_key"


def test_without_the_shared_engine_a_key_is_needed() -> None:
    sessions = Sessions(lambda report: load_model(MODEL, report), shared_enabled=False)
    with serving(sessions) as server:
        sessions.wait_for_model()
        with server.client() as client:
            assert client.get("/v1/models").status_code == 401
            refused = client.post("/api/events/ticket", headers=bearer("EMPTY"))
            assert refused.status_code == 401
            assert "shared engine is turned off" in error_of(refused)["message"]
        key, _ = server.session()
        with server.client(key) as client:
            assert client.get("/v1/models").status_code == 200
            assert client.get("/api/session").json()["shared_engine"] is False


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"temperature": 2.5}, "temperature"),
        ({"seed": 2**63}, "seed"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stop_token_ids": ["x"]}, "stop_token_ids"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [259]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"includeusage": True}}, "stream_options"),
        ({"priority": 3}, "priority"),
        ({"cache_salt": ""}, "cache_salt"),
        ({"cache_salt": 7}, "cache_salt"),
        ({"cache_salt": "s" * 1025}, "cache_salt"),
        ({"n": 0}, "n"),
        ({"n": 17}, "n"),
        ({"n": 2, "temperature": 0}, "n"),
        ({"best_of": 2}, "best_of"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"echo": 1}, "echo"),
        ({"min_p": 1.1}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"presence_penalty": 2.5}, "presence_penalty"),
        ({"frequency_penalty": "much"}, "frequency_penalty"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"259": 1}}, "logit_bias"),
        ({"logit_bias": {str(token): 1 for token in range(1_025)}}, "logit_bias"),
        ({"min_tokens": 17}, "min_tokens"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": [{}]}, "tools"),
        ({"temprature": 1}, "temprature"),
    ],
)
def test_bad_parameters_are_named(server: Server, changes: dict[str, Any], param: str) -> None:
    with server.client() as client:
        answer = client.post("/v1/completions", json={"prompt": "a", **changes})
    assert answer.status_code == 400
    error = error_of(answer)
    assert error["param"] == param and error["message"].startswith(param)
    assert error["type"] == "invalid_request_error"


def test_parameters_that_ask_for_nothing_are_taken(server: Server) -> None:
    body = {
        "prompt": "a",
        "max_tokens": 1,
        "n": 1,
        "logprobs": None,
        "echo": False,
        "presence_penalty": 0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "logit_bias": {},
        "min_p": 0,
        "user": "somebody",
        "top_k": -1,
        "tools": [],
        "response_format": {"type": "text"},
    }
    with server.client() as client:
        assert client.post("/v1/completions", json=body).status_code == 200
        chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "logprobs": False}
        assert client.post("/v1/chat/completions", json=chat).status_code == 200


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "at least 1"),
        ([{"role": "nobody", "content": "a"}], "'user'"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "'text'"),
        ([{"role": "user"}], "required"),
        ([{"role": "assistant", "content": "a", "tool_calls": [{}]}], "tool_calls: not supported"),
    ],
)
def test_bad_messages_are_named(server: Server, messages: list[Any], why: str) -> None:
    with server.client() as client:
        answer = client.post("/v1/chat/completions", json={"messages": messages})
    assert answer.status_code == 400
    error = error_of(answer)
    assert error["param"] == "messages" and why in error["message"]


def test_an_answer_s_message_can_be_sent_back(server: Server) -> None:
    client = openai_client(server)
    messages: list[Any] = [{"role": "user", "content": "hi", "name": "somebody"}]
    ask: Any = {"model": MODEL, "max_tokens": 2}
    messages.append(client.chat.completions.create(messages=messages, **ask).choices[0].message)
    messages = [messages[0], messages[1].model_dump(), messages[0]]
    assert client.chat.completions.create(messages=messages, **ask).choices[0].message.content


def test_a_prompt_too_long_says_how_long_it_is_and_may_be(server: Server) -> None:
    key, engine = server.session()
    with server.client(key) as client:
        answer = client.post("/v1/completions", json={"prompt": "a" * 1008})
        error = error_of(answer)
        assert answer.status_code == 400
        assert error["code"] == "context_length_exceeded" and error["param"] == "prompt"
        assert "1008" in error["message"] and "1007" in error["message"]
        content = [{"role": "user", "content": "a" * 1008}]
        answer = client.post("/v1/chat/completions", json={"messages": content})
        assert error_of(answer)["param"] == "messages"
        # One token less fits, and one of several prompts takes the others back.
        answer = client.post("/v1/completions", json={"prompt": ["a", "a" * 1008]})
        assert answer.status_code == 400
    wait_until(lambda: engine.num_unfinished == 0)


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b"\xff", b'"text"', b""])
def test_what_is_no_json_object_is_refused(server: Server, body: bytes) -> None:
    with server.client() as client:
        answer = client.post(
            "/v1/completions", content=body, headers={"Content-Type": "application/json"}
        )
    assert answer.status_code == 400
    assert error_of(answer)["message"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"prompt": "\xff"}', "the byte at 12 is no UTF-8"),
        (b'{"prompt": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"prompt": "a", "seed": ' + b"9" * 5_000 + b"}", "too many digits"),
    ],
)
def test_a_body_that_cannot_be_read_is_told_why(server: Server, body: bytes, why: str) -> None:
    with server.client() as client:
        answer = client.post(
            "/v1/completions", content=body, headers={"Content-Type": "application/json"}
        )
    assert answer.status_code == 400
    assert why in error_of(answer)["message"]


@pytest.mark.parametrize(
    "changes",
    [
        {"k" * 100_000: 1},
        {"logit_bias": {"k" * 900 + str(number): 1 for number in range(1_024)}},
        {"logit_bias": {str(2**40 + number): 1 for number in range(1_024)}},
    ],
)
def test_no_error_is_as_long_as_what_it_is_about(server: Server, changes: dict[str, Any]) -> None:
    with server.client() as client:
        answer = client.post("/v1/completions", json={"prompt": "a", **changes})
    assert answer.status_code == 400 and len(answer.content) < 3_000


def test_what_no_engine_can_hold_is_refused_for_good(server: Server) -> None:
    key, engine = server.session()
    many = {"prompt": ["a"] * 64, "n": 9}
    rated = {"prompt": ["a" * 500] * 3, "n": 16, "prompt_logprobs": 20}
    with server.client(key) as client:
        for body, param in ((many, "n"), (rated, "prompt_logprobs")):
            answer = client.post("/v1/completions", json=body)
            assert answer.status_code == 400
            assert error_of(answer)["param"] == param
    assert engine.num_unfinished == 0


def test_max_tokens_ends_where_the_context_does(server: Server) -> None:
    key, engine = server.session()
    engine.reset(EngineConfig(max_model_len=30))
    engine.run()
    with server.client(key) as client:
        client.post("/v1/completions", json={"prompt": "abcd", "max_tokens": 10**30})
        client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "hi"}]})
    states = engine.outputs.states
    asked = {name: state.request.sampling_params.max_tokens for name, state in states.items()}
    assert asked == {"r0": 26, "r1": 9}


def test_other_addresses_methods_and_models(server: Server) -> None:
    with server.client() as client:
        for answer, status in (
            (client.get("/v1/nothing"), 404),
            (client.get("/v1/completions"), 405),
            (client.post("/v1/completions", json={"prompt": "a", "model": "gpt-5"}), 404),
            (client.post("/v1/completions", content=b"x" * (9 << 20)), 413),
        ):
            assert answer.status_code == status
            error_of(answer)
        assert client.get("/v1/completions").headers["Allow"] == "POST"


def test_a_large_body_without_a_length_is_told_so(server: Server) -> None:
    def pieces() -> Iterator[bytes]:
        yield b'{"prompt": "'
        for _ in range(9):
            yield b"x" * (1 << 20)

    with server.client() as client:
        for path in ("/v1/completions", "/v1/chat/completions"):
            answer = client.post(path, content=pieces())
            assert answer.status_code == 413
            said = error_of(answer)["message"]
            assert said.startswith("the body is larger than 8 MB (GLASSBOX_MAX_BODY_MB is")


def test_a_text_too_long_for_any_tokens_never_becomes_tokens(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, engine = server.session()

    def boom(*_: object, **__: object) -> None:
        raise AssertionError("it was made into tokens")

    most = 13 * 1007  # characters of <|endoftext|>, tokens
    for name in ("__call__", "decode"):
        monkeypatch.setattr(type(engine.model.tokenizer), name, boom)
    with server.client(key) as client:
        for prompt in ("a" * (most + 1), ["a" * (most + 1), "b"], [1] * 1008):
            error = error_of(client.post("/v1/completions", json={"prompt": prompt}))
            assert error["code"] == "context_length_exceeded" and error["param"] == "prompt"
            assert ("1008 tokens" if prompt[0] == 1 else f"{most} at most") in error["message"]
        content = [{"role": "user", "content": "a" * most}]
        answer = client.post("/v1/chat/completions", json={"messages": content})
        assert error_of(answer)["param"] == "messages"
    refusals = [
        record.reason
        for record in engine.trace.records
        if isinstance(record, Event) and isinstance(record.facts, RequestRefused)
    ]
    assert refusals[0] == PromptTextTooLong(most + 1, 13, 1008)
    assert refusals[2] == PromptTooLong(1008, 1008) and len(refusals) == 4


def test_a_long_list_with_something_wrong_in_it_gets_one_error(server: Server) -> None:
    with server.client() as client:
        for field, value in (
            ("prompt", [1] * 100_000 + ["a"]),
            ("prompt", [[1]] * 64 + [1]),
            ("prompt", ["a"] * 65),
            ("stop", [1] * 100_000),
            ("stop_token_ids", ["a"] * 100_000),
        ):
            error = error_of(client.post("/v1/completions", json={"prompt": "a", field: value}))
            assert error["param"] == field and len(error["message"]) < 400


def test_what_nobody_expected_is_a_plain_500(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def boom(*_: object) -> None:
        raise ZeroDivisionError("a secret of the inside")

    monkeypatch.setattr(InputProcessor, "encode", boom)
    with server.client() as client:
        answer = client.post("/v1/completions", json={"prompt": "a"})
    assert answer.status_code == 500
    assert error_of(answer)["type"] == "server_error"
    assert "secret" not in answer.text


def test_a_client_that_goes_away_takes_its_request_along(server: Server) -> None:
    key, engine = server.session()
    with server.client(key) as client:
        body = {"prompt": "a" * 40, "max_tokens": 500, "ignore_eos": True, "stream": True}
        engine.run(50)
        with client.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            while not next(lines).startswith("data:"):
                pass
            assert blocks_in_use(engine) >= 3
    wait_until(lambda: engine.num_unfinished == 0)
    assert blocks_in_use(engine) == 0
    assert engine.trace.state()["requests"]["r0"]["finish_reason"] == "abort"


def asked_plainly(server: Server, key: str, body: dict[str, Any]) -> socket.socket:
    """A client that asks and then only holds the line; closing it is going away."""
    content = json.dumps(body)
    address = urlsplit(server.url)
    line = socket.create_connection((address.hostname, address.port), PATIENCE_S)
    line.sendall(
        f"POST /v1/completions HTTP/1.1\r\nHost: {address.netloc}\r\n"
        f"Authorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n{content}".encode()
    )
    return line


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_while_the_engine_is_paused(server: Server, stream: bool) -> None:
    key, engine = server.session()
    with asked_plainly(server, key, {"prompt": "a", "stream": stream}):
        wait_until(lambda: engine.num_unfinished == 1)
    wait_until(lambda: engine.num_unfinished == 0)
    assert engine.trace.state()["requests"]["r0"]["finish_reason"] == "abort"


def test_a_client_that_goes_away_while_its_prompt_waits_to_be_read(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, engine = server.session()
    go_on, submit = threading.Event(), TOKENIZING.submit
    prompts: list[Future[Any]] = []

    def waiting(*work: Any) -> Future[Any]:
        prompts.append(submit(*work))
        return prompts[-1]

    submit(go_on.wait, PATIENCE_S)
    monkeypatch.setattr(TOKENIZING, "submit", waiting)
    try:
        with asked_plainly(server, key, {"prompt": "a"}):
            wait_until(lambda: prompts)
        wait_until(prompts[0].cancelled)  # the server has seen that nobody waits any more
    finally:
        go_on.set()
    submit(lambda: None).result(PATIENCE_S)
    engine.step()
    assert engine.trace.state()["requests"] == {}


def test_an_abort_from_the_page_ends_the_answer(server: Server) -> None:
    key, engine = server.session()
    with server.client(key) as client:
        body = {"prompt": "a", "max_tokens": 500, "stream": True}
        with client.stream("POST", "/v1/completions", json=body) as answer:
            with server.client(key) as page:
                assert page.post("/api/engine/abort", json={"request": "r0"}).json()["ok"]
            lines = [line for line in answer.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]"
    assert json.loads(lines[-2][6:])["choices"][0]["finish_reason"] == "abort"


def test_a_failed_engine_answers_with_an_error_and_works_after_a_reset(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, engine = server.session()

    def boom() -> None:
        raise RuntimeError("the forward broke")

    monkeypatch.setattr(engine.core.runner, "execute_model", boom)
    engine.run()
    with server.client(key) as client:
        answer = client.post("/v1/completions", json={"prompt": "a"})
        assert answer.status_code == 500
        assert "the forward broke" in error_of(answer)["message"]
        body = {"prompt": "a", "stream": True}
        assert error_of(client.post("/v1/completions", json=body))["code"] == "engine_stopped"
        assert client.post("/api/engine/step").status_code == 500
        assert client.post("/api/engine/reset", json={"config": None}).json()["failed"] is None
        assert client.post("/api/engine/run").json()["mode"] == "running"
        answer = client.post("/v1/completions", json={"prompt": "a", "max_tokens": 2})
        assert answer.json()["usage"]["completion_tokens"] == 2


def test_an_engine_that_fails_in_mid_stream_says_so_in_the_stream(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, engine = server.session()
    with server.client(key) as client:
        body = {"prompt": "a", "max_tokens": 50, "stream": True, "ignore_eos": True}
        with client.stream("POST", "/v1/completions", json=body) as answer:
            engine.step()
            monkeypatch.setattr(engine.core.runner, "execute_model", lambda: 1 / 0)
            engine.run()
            lines = [line for line in answer.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]"
    assert "ZeroDivisionError" in json.loads(lines[-2][6:])["error"]["message"]


def test_priorities_go_where_the_policy_knows_them(server: Server) -> None:
    key, engine = server.session()
    engine.reset(EngineConfig(scheduling_policy="priority"))
    engine.run()
    with server.client(key) as client:
        body = {"prompt": "a", "max_tokens": 1, "priority": -3}
        assert client.post("/v1/completions", json=body).status_code == 200
    assert engine.trace.state()["requests"]["r0"]["priority"] == -3


def test_a_cache_salt_keeps_cached_blocks_to_itself(server: Server) -> None:
    key, engine = server.session()
    engine.run()
    with server.client(key) as client:
        for body in ({}, {"cache_salt": "mine"}, {"cache_salt": None}, {"cache_salt": "mine"}):
            asked = {"prompt": "a" * 40, "max_tokens": 1, **body}
            assert client.post("/v1/completions", json=asked).status_code == 200
        half = client.post("/v1/completions", content=b'{"prompt": "a", "cache_salt": "\\ud800"}')
    requests = engine.trace.state()["requests"]
    assert [requests[f"r{n}"]["hit_tokens"] for n in range(4)] == [0, 0, 32, 32]
    assert [requests[f"r{n}"].get("cache_salt") for n in range(4)] == [None, "mine", None, "mine"]
    assert half.status_code == 400 and "cache_salt: " in half.json()["error"]["message"]


def test_no_model_yet_is_a_503_and_health_says_how_far_it_is() -> None:
    sessions = Sessions(lambda report: load_model("./no-such-model", report))
    with serving(sessions) as server, server.client() as client:
        wait_until(lambda: sessions.model_status().stage == "failed")
        health = client.get("/health")
        assert health.status_code == 503 and health.json()["status"] == "failed"
        answer = client.post("/v1/completions", json={"prompt": "a"})
        assert answer.status_code == 500
        assert "no-such-model" in error_of(answer)["message"]
