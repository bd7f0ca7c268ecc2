"""From tokens to the client's text: pieces, stop strings, ends, and the part of the state."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from engine.config import SamplingParams
from engine.events import RequestCompleted, TextEmitted
from engine.model_loader.tiny import byte_tokenizer
from engine.output_processor import OutputProcessor, RequestLost, RequestStream
from engine.outputs import EngineCoreOutput, RequestOutput, TokenLogprobs
from engine.records import Event
from engine.request import Request
from engine.trace import State, check_patch, merge_patch
from tests.engine.traces import make_trace
from tests.waiting import PATIENCE_S

EOS = 2


def tokens(text: str) -> list[int]:
    return [3 + byte for byte in text.encode()]


class Desk:
    """An output processor with its log, fed by hand."""

    def __init__(self) -> None:
        self.trace = make_trace()
        self.processor = OutputProcessor(byte_tokenizer(), self.trace)
        self.state: State = {}

    def add(self, prompt: str = "hi", **params: Any) -> RequestStream:
        request = Request(
            f"r{len(self.processor.states)}", tokens(prompt), SamplingParams(**params)
        )
        stream = RequestStream(request.request_id, prompt, request.all_token_ids[:])
        self.processor.add_request(request, "http", stream)
        self.check()
        return stream

    def give(
        self, stream: RequestStream, text: str | int, finish: str | None = None
    ) -> list[tuple[str, str, int]]:
        """A token (or a letter's) to a request, and a look at its part of the state."""
        token = text if isinstance(text, int) else tokens(text)[0]
        return self.give_all(stream, (token,), finish)

    def give_all(
        self,
        stream: RequestStream,
        new: tuple[int, ...],
        finish: str | None = None,
        logprobs: tuple[TokenLogprobs, ...] | None = None,
    ) -> list[tuple[str, str, int]]:
        """Several tokens at once, as accepted drafts come."""
        output = EngineCoreOutput(stream.request_id, new, finish, None, logprobs)
        stopped = self.processor.process([output])
        self.check()
        return stopped

    def check(self) -> None:
        changes = self.processor.take_changes()
        check_patch(self.state, changes)
        merge_patch(self.state, changes)
        assert self.state == self.processor.snapshot()

    def facts(self, kind: type[Any]) -> list[Any]:
        return [
            record.facts
            for record in self.trace.records
            if isinstance(record, Event) and isinstance(record.facts, kind)
        ]


def read(stream: RequestStream) -> list[RequestOutput]:
    outputs = []
    while (output := stream.get_nowait()) is not None:
        outputs.append(output)
    return outputs


def test_each_token_s_text_goes_out_and_into_the_state() -> None:
    desk = Desk()
    stream = desk.add("hé")
    desk.give(stream, "a")
    desk.give(stream, "b", "length")
    assert [output.text for output in read(stream)] == ["a", "b"]
    record = desk.state["requests"]["r0"]
    assert record["prompt"] == "hé" and record["source"] == "http"
    assert record["prompt_pieces"] == ["h", "", "é"]
    assert record["output_pieces"] == {"0": "a", "1": "b"}
    assert [(f.text, f.output_index) for f in desk.facts(TextEmitted)] == [("a", 0), ("b", 1)]
    assert [f.finish_reason for f in desk.facts(RequestCompleted)] == ["length"]
    assert stream.ended


def test_an_unfinished_character_waits_for_its_last_byte() -> None:
    desk = Desk()
    stream = desk.add()
    for byte in "é".encode():
        desk.give(stream, 3 + byte)
    assert [output.text for output in read(stream)] == ["", "é"]
    assert desk.state["requests"]["r0"]["output_pieces"] == {"0": "", "1": "é"}
    assert [f.text for f in desk.facts(TextEmitted)] == ["é"]


def test_what_never_became_a_character_comes_at_the_end() -> None:
    desk = Desk()
    stream = desk.add()
    desk.give(stream, 3 + "é".encode()[0], "length")
    assert read(stream)[0].text == "\ufffd"


def test_a_stop_string_over_two_tokens_ends_the_request_and_is_not_shown() -> None:
    desk = Desk()
    stream = desk.add(stop=("zz", "xy"))
    assert desk.give(stream, "a") == []
    assert desk.give(stream, "x") == []
    assert desk.give(stream, "y") == [("r0", "xy", 1)]
    outputs = read(stream)
    assert "".join(output.text for output in outputs) == "a"
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == ("stop", "xy")
    # A token that was on its way already has nobody to go to.
    assert desk.give(stream, "b") == []
    assert read(stream) == []


def test_held_text_goes_out_when_it_is_no_stop_string_or_nothing_follows() -> None:
    desk = Desk()
    first, second = desk.add(stop=("xyz",)), desk.add(stop=("xyz",))
    for letter in "xyw":
        desk.give(first, letter)
    assert [output.text for output in read(first)] == ["", "", "xyw"]
    desk.give(second, "x")
    desk.give(second, "y", "length")
    assert "".join(output.text for output in read(second)) == "xy"


def test_the_token_that_ends_the_text_is_no_part_of_it() -> None:
    desk = Desk()
    stream, other = desk.add(), desk.add()
    desk.give(stream, "a")
    desk.give(stream, EOS, "stop")
    desk.give(other, "q", "stop")  # a stop token that is a letter
    assert "".join(output.text for output in read(stream)) == "a"
    assert read(other)[0].text == ""
    assert desk.state["requests"]["r0"]["output_pieces"] == {"0": "a", "1": ""}


def test_an_abort_and_a_failure_end_the_streams() -> None:
    desk = Desk()
    aborted, lost = desk.add(), desk.add()
    desk.processor.abort([aborted.request_id, "unknown"])
    assert read(aborted)[-1].finish_reason == "abort"
    desk.give(lost, "a")
    desk.processor.fail_all(RequestLost("gone"))
    assert lost.get_nowait() is not None  # what was there is still read
    with pytest.raises(RequestLost, match="gone"):
        lost.get_nowait()
    assert not desk.processor.open


def test_forgotten_requests_leave_the_state() -> None:
    desk = Desk()
    stream = desk.add()
    desk.give(stream, "a", "length")
    desk.processor.forget(["r0"])
    assert desk.processor.snapshot() == {}


def test_a_stream_is_read_from_another_thread_as_it_comes() -> None:
    desk = Desk()
    stream = desk.add()
    seen: list[str] = []
    reader = threading.Thread(target=lambda: seen.extend(output.text for output in stream))
    reader.start()
    for letter in "abc":
        desk.give(stream, letter)
    desk.give(stream, "d", "length")
    reader.join(PATIENCE_S)
    assert seen == ["a", "b", "c", "d"]


def test_a_stream_is_read_by_asyncio_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    stream = desk.add()

    async def follow() -> list[str]:
        def write() -> None:
            desk.give(stream, "a")
            time.sleep(0.05)
            desk.give(stream, EOS, "stop")

        writer = threading.Timer(0.02, write)
        writer.start()
        return [output.text async for output in stream]

    looks = 0
    get_nowait = stream.get_nowait

    def counted() -> RequestOutput | None:
        nonlocal looks
        looks += 1
        return get_nowait()

    monkeypatch.setattr(stream, "get_nowait", counted)
    assert asyncio.run(asyncio.wait_for(follow(), PATIENCE_S)) == ["a", ""]
    assert looks <= 5  # it sleeps until there is something

    async def again() -> list[str]:
        return [output.text async for output in stream]

    assert asyncio.run(asyncio.wait_for(again(), 5)) == []


LOGPROBS = TokenLogprobs(5, -0.5, 1, ((5, -0.5),))


@pytest.mark.parametrize("fails", [False, True])
def test_who_wants_all_of_a_stream_is_woken_once(fails: bool) -> None:
    desk = Desk()
    stream = desk.add()

    async def read_at_end() -> tuple[int, list[RequestOutput]]:
        loop, woken = asyncio.get_running_loop(), list[object]()
        plain = loop.call_soon_threadsafe

        def counted(call: Any, *arguments: Any, **more: Any) -> asyncio.Handle:
            woken.append(call)
            return plain(call, *arguments, **more)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
        waiting = asyncio.create_task(stream.until_ended())
        for letter in "abc":
            await asyncio.sleep(0)
            desk.give(stream, letter)
            assert not waiting.done()
        if fails:
            desk.processor.fail_all(RequestLost("the engine is gone"))
        else:
            desk.give(stream, "d", "length")
        await asyncio.wait_for(waiting, PATIENCE_S)
        return len(woken), read(stream) if not fails else []

    woken, outputs = asyncio.run(read_at_end())
    assert woken == 1
    assert "".join(output.text for output in outputs) == ("" if fails else "abcd")
    asyncio.run(asyncio.wait_for(stream.until_ended(), PATIENCE_S))  # it has


def test_logprobs_stay_beside_their_tokens() -> None:
    """Also those of a token that a stop string cut off, and of an abort that has none."""
    desk = Desk()
    stopped = desk.add(stop=("b",), logprobs=1)
    aborted, silent = desk.add(logprobs=0), desk.add()
    for text in "ab":
        output = EngineCoreOutput(stopped.request_id, (tokens(text)[0],), None, None, (LOGPROBS,))
        desk.processor.process([output])
    desk.processor.abort([aborted.request_id, silent.request_id])
    for stream in (stopped, aborted):
        for output in read(stream):
            assert output.logprobs is not None
            assert len(output.logprobs) == len(output.token_ids)
    assert read(silent)[0].logprobs is None


def test_the_prompt_s_logprobs_are_there_with_the_first_output() -> None:
    desk = Desk()
    stream = desk.add(prompt_logprobs=1)
    assert stream.prompt_logprobs is None
    output = EngineCoreOutput(stream.request_id, (70,), None, None, None, (None, LOGPROBS))
    desk.processor.process([output])
    assert stream.prompt_logprobs == (None, LOGPROBS)
    desk.give(stream, "a")
    assert stream.prompt_logprobs == (None, LOGPROBS)


def test_a_stream_of_several_ends_when_the_last_one_did() -> None:
    desk = Desk()
    stream = RequestStream("r9", "hi", [1, 2], n=2)
    for index in range(2):
        request = Request(f"{index}_r9", tokens("hi"), SamplingParams(), parent="r9")
        desk.processor.add_request(request, "http", stream, index)
    for key, finish in (("1_r9", "length"), ("0_r9", None), ("0_r9", "stop")):
        assert not stream.ended
        desk.processor.process([EngineCoreOutput(key, tokens("a"), finish, None)])  # type: ignore[arg-type]
    assert stream.ended
    assert [(o.index, o.finish_reason) for o in stream] == [(1, "length"), (0, None), (0, "stop")]


def test_tokens_that_come_together_are_told_one_by_one() -> None:
    desk = Desk()
    stream = desk.add()
    desk.give_all(stream, (*tokens("aé"), *tokens("b")[:1]))
    desk.give_all(stream, (*tokens("c"), EOS), "stop")
    first, last = read(stream)
    assert (first.text, last.text) == ("aéb", "c")  # the end itself is no text
    assert len(first.token_ids) == 4 and last.token_ids == (*tokens("c"), EOS)
    pieces = desk.state["requests"]["r0"]["output_pieces"]
    assert list(pieces.values()) == ["a", "", "é", "b", "c", ""]
    assert [f.output_index for f in desk.facts(TextEmitted)] == [0, 2, 3, 4]


@pytest.mark.parametrize("finish", [None, "length"])
def test_a_stop_string_in_the_middle_of_several_tokens_ends_there(finish: str | None) -> None:
    """Also where the last of them would have ended the request for another reason."""
    desk = Desk()
    stream = desk.add(stop=("xy",), logprobs=0)
    new = tuple(tokens("axyb"))
    rated = tuple(TokenLogprobs(token, -1.0, 1, ()) for token in new)
    assert desk.give_all(stream, new, finish, rated) == [("r0", "xy", 0)]
    (output,) = read(stream)
    assert (output.text, output.finish_reason, output.stop_reason) == ("a", "stop", "xy")
    assert (output.token_ids, output.logprobs) == (new[:3], rated[:3])
    assert len(desk.state["requests"]["r0"]["output_pieces"]) == 4  # each token known has one
