"""The log on its way to the page: tickets and server-sent events.

The way back of connection `engine-to-client`. A browser's EventSource cannot send headers, so it
brings a ticket instead of the key: good for one use within half a minute, so that an address that
leaks into somebody's log opens nothing. No counterpart in vLLM, which keeps no log of its steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from sse_starlette import EventSourceResponse
from starlette.responses import JSONResponse, Response

from engine.api.access import bearer_key, check_key, engine_of, keyed_router
from engine.api.errors import to_api_error
from engine.api.protocol import ApiError, NoBody
from engine.async_llm import AsyncLLM
from engine.doing import Doing, not_there_before
from engine.sessions import Sessions
from engine.trace import Trace, TraceHeader, record_to_json

TICKET_SECONDS = 30.0
MAX_TICKETS = 10_000
RECORDS_A_MESSAGE = 1_000
MESSAGE_GAP = 0.03  # seconds between two messages: some thirty a second are more than one can see
DOING_GAP = 0.5  # between two tellings of how far one thing is
STATUS_GAP = 0.25  # between two looks at how far the model is
SIGN_OF_LIFE = 10.0  # how often an open stream counts as a visit


class EventStream(EventSourceResponse):
    """Server-sent events that end in order with the server, after these last messages."""

    def __init__(
        self, content: AsyncIterator[dict[str, str]], last: tuple[str, ...] = (), **more: Any
    ):
        super().__init__(content, sep="\n", **more)
        self.last = "".join(f"data: {data}\n\n" for data in last).encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        more_body = False

        async def watched(message: Any) -> None:
            nonlocal more_body
            await send(message)
            more_body = message["type"] == "http.response.start" or message.get("more_body", False)

        await super().__call__(scope, receive, watched)
        if more_body and self.active:  # cut off by the server's end, not by the client
            await send({"type": "http.response.body", "body": self.last, "more_body": False})


class Tickets:
    """What lets a stream in without a header: one use, and not for long."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._keys: dict[str, tuple[str, float]] = {}  # ticket -> key, until; oldest first

    def issue(self, key: str) -> str:
        """A ticket for the session with this key."""
        self._drop_old()
        ticket = secrets.token_urlsafe(24)
        self._keys[ticket] = (key, self._clock() + TICKET_SECONDS)
        return ticket

    def redeem(self, ticket: str) -> str | None:
        """The key that the ticket stands for; None for one that is used, old or invented."""
        self._drop_old()
        key, _ = self._keys.pop(ticket, (None, 0.0))
        return key

    def _drop_old(self) -> None:
        for ticket, (_, until) in tuple(self._keys.items()):
            if until > self._clock() and len(self._keys) < MAX_TICKETS:
                return
            del self._keys[ticket]


def log_routes(sessions: Sessions, tickets: Tickets) -> APIRouter:
    """POST /api/events/ticket; GET /api/events, which a ticket opens as well."""
    router = keyed_router(sessions)

    @router.post("/events/ticket")
    async def ticket(request: Request, body: NoBody | None = None) -> Response:
        key = check_key(sessions, bearer_key(request))
        return JSONResponse({"ticket": tickets.issue(key)})

    async def events(
        request: Request, ticket: str | None = None, after: str | None = None
    ) -> Response:
        if ticket is not None:
            redeemed = tickets.redeem(ticket)
            if redeemed is None:
                raise ApiError(
                    "ticket: it was used, or is too old; ask for another one",
                    401,
                    param="ticket",
                    code="invalid_ticket",
                )
            key = redeemed
        elif "authorization" in request.headers:
            key = bearer_key(request)
        else:
            raise ApiError("a ticket, or the key as Authorization, is needed", 401)
        check_key(sessions, key)
        cursor = Cursor.parse(request.headers.get("last-event-id") or after or "")
        return EventStream(log_messages(sessions, key, cursor))

    router.add_api_route("/events", events, methods=["GET"], route_class_override=APIRoute)
    return router


class Cursor:
    """How far a reader is: in which trace, up to which record."""

    def __init__(self, trace_id: str = "", seq: int = -1):
        self.trace_id = trace_id
        self.seq = seq
        self._header: tuple[str, int] | None = None  # that was read last: its trace and base

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """`TRACE_ID:SEQ`; "" is before everything. ApiError where it is neither."""
        if not text:
            return cls()
        trace_id, _, seq = text.rpartition(":")
        if not trace_id or not seq.isascii() or not seq.isdigit() or len(seq) > 15:
            raise ApiError(f"after: {text!r:.60} is not TRACE_ID:SEQ", param="after")
        return cls(trace_id, int(seq))

    def read(self, trace: Trace) -> tuple[TraceHeader | None, list[Any]]:
        """What comes next in `trace`, with the header where the reader lacks it."""
        if self.trace_id != trace.header.trace_id or self.seq >= trace.next_seq:
            self.trace_id, self.seq = trace.header.trace_id, -1
        header, records = trace.after(self.seq, RECORDS_A_MESSAGE)
        if records:
            self.seq = records[-1].seq
        if header is not None:
            if self._header == (header.trace_id, header.base_seq):  # a log without records yet
                return None, records
            self._header = (header.trace_id, header.base_seq)
        return header, records

    def __str__(self) -> str:
        return f"{self.trace_id}:{self.seq}"


async def log_messages(
    sessions: Sessions, key: str, cursor: Cursor
) -> AsyncIterator[dict[str, str]]:
    """The messages of one event stream: how far the model is, then the log, for ever."""
    async for message in until_model_is_ready(sessions):
        yield message
    making = asyncio.ensure_future(engine_of(sessions, key))
    try:
        async for message in until_engine_is_made(sessions, making):
            yield message
        engine = await making
    except Exception as error:
        yield message_of_error(error)
        return
    finally:
        making.cancel()
    notice, is_sessions = partial(sessions.notice, key), sessions.knows(key)

    def sign_of_life() -> bool:
        sessions.touch(key)
        return sessions.knows(key) or not is_sessions

    async for message in follow(engine, cursor, sign_of_life, notice):
        yield message


async def until_model_is_ready(sessions: Sessions) -> AsyncIterator[dict[str, str]]:
    """`status` messages while the model is loaded; none where it is there."""
    sessions.start()
    told = None
    while (status := sessions.model_status()).stage != "ready":
        if status != told:
            told = status
            yield {"event": "status", "data": json.dumps(status._asdict())}
        await asyncio.sleep(STATUS_GAP)


async def until_engine_is_made(
    sessions: Sessions, making: asyncio.Future[AsyncLLM]
) -> AsyncIterator[dict[str, str]]:
    """`doing` messages while an engine waits to be made or woken, of what goes before it."""
    teller = DoingTeller()
    while not (await asyncio.wait([making], timeout=STATUS_GAP))[0]:
        doing = sessions.thread.doing
        if teller.has_news(doing and not_there_before(doing)):
            yield {"event": "doing", "data": teller.data}
    if teller.has_news(None):
        yield {"event": "doing", "data": teller.data}


async def follow(
    engine: AsyncLLM,
    cursor: Cursor,
    sign_of_life: Callable[[], bool],
    notice: Callable[[], str | None] = lambda: None,
) -> AsyncIterator[dict[str, str]]:
    """`header` and `records` messages, as the engine writes its log.

    Until the engine is closed, or the `sign_of_life` that an open stream gives tells that who reads
    is nobody any more.
    What takes longer than a step is told beside that (`doing`), and null once it is over.
    Behind what was there at the beginning comes the `notice`, where there is one: it holds until
    more is written.
    """
    loop = asyncio.get_running_loop()
    news = asyncio.Event()

    def wake() -> None:
        if news.is_set():  # it will read what there is now: a step ends seven phases
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody reads any more
            loop.call_soon_threadsafe(news.set)

    unsubscribe = engine.subscribe(wake)
    noticed, teller = False, DoingTeller()
    try:
        while not engine.closed and sign_of_life():
            news.clear()  # before reading, so that what comes meanwhile is not missed
            if teller.has_news(engine.doing):
                yield {"event": "doing", "data": teller.data}
            header, records = cursor.read(engine.trace)
            if header is not None:
                # Its state may be that of 16,384 blocks: others' answers do not wait for it.
                yield {"event": "header", "data": await asyncio.to_thread(header_data, header)}
            if records:
                data = encode([record_to_json(record) for record in records])
                yield {"event": "records", "id": str(cursor), "data": data}
            if not noticed and len(records) < RECORDS_A_MESSAGE:
                noticed, text = True, notice()
                if text is not None:
                    yield {"event": "notice", "data": json.dumps({"text": text})}
            await asyncio.sleep(MESSAGE_GAP)
            if len(records) < RECORDS_A_MESSAGE:
                await wait_for(news, sign_of_life)
        why = "the engine was put to rest" if engine.closed else "this key is good no more"
        yield {"event": "closed", "data": json.dumps({"text": why})}
    finally:
        unsubscribe()


class DoingTeller:
    """What a reader was told last of what takes long."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: Doing | None = None
        self._told_at = 0.0

    def has_news(self, doing: Doing | None) -> bool:
        """Whether that is to be told: at once where it is another thing, else now and then."""
        told, now = self._told, self._clock()
        if doing == told:
            return False
        if doing and told and doing.what == told.what and now - self._told_at < DOING_GAP:
            return False
        self._told, self._told_at = doing, now
        return True

    @property
    def data(self) -> str:
        """That, as the wire has it."""
        return encode(self._told and {**self._told._asdict(), "text": str(self._told)})


async def wait_for(news: asyncio.Event, sign_of_life: Callable[[], bool]) -> None:
    """Until there is news; an open stream shows meanwhile that its tab is there."""
    while sign_of_life():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), SIGN_OF_LIFE)
            return


def header_data(header: TraceHeader) -> str:
    """The header as the wire has it."""
    return encode({"kind": "header", **header.model_dump()})


def encode(value: Any) -> str:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":"))


def message_of_error(error: Exception) -> dict[str, str]:
    """The last message of a stream that cannot go on."""
    return {"event": "failed", "data": json.dumps(to_api_error(error).body())}
