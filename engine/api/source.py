"""What the page asks about the engine's own source: where events are made, and the files.

The other end of box `client-req`, beside `kernels.py`. No counterpart in vLLM. Only files in which
events or reasons are made can be had (`engine/source_sites.py`), by their names: what a client
sends is looked up among these and never becomes a path. Nothing here is secret, so no key is asked
for.
"""

from __future__ import annotations

import io
import keyword
import tokenize
from asyncio import to_thread
from functools import cache
from typing import Any, NamedTuple

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from engine.api.protocol import ApiError
from engine.source_sites import Among, Site, sites, source_version, sources

TEXTS = {"STRING", "FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END"}  # the last three from 3.12 on


class Span(NamedTuple):
    """Characters of a line that the page has a colour for."""

    first: int  # column
    last: int  # the column behind
    kind: str  # "keyword", "string", "comment", "number" or "defined"


def source_routes() -> APIRouter:
    """GET /api/source has the places, GET /api/source/file?path=NAME one of their files."""
    router = APIRouter()

    @router.get("/source")
    async def places() -> Response:
        return JSONResponse(await to_thread(described_sites))

    @router.get("/source/file")
    async def file(path: str) -> Response:
        if path not in (await to_thread(described_sites))["files"]:
            raise ApiError(f"path: in {path!r:.80} no event is made", 404, param="path")
        return JSONResponse(await to_thread(described_file, path))

    return router


@cache
def described_sites() -> dict[str, Any]:
    """Every site, the version of the source that they are of, and the files."""
    return {
        "version": source_version(),
        "files": sorted({site.path for site in sites()}),
        "sites": [described(site) for site in sites()],
    }


def described(site: Site) -> dict[str, Any]:
    """A site as JSON; what its `when` leaves out is null or empty."""
    when = site.when and {
        name: asked._asdict() if isinstance(asked, Among) else asked
        for name, asked in site.when._asdict().items()
    }
    return {**site._asdict(), "when": when, "values": [each._asdict() for each in site.values]}


@cache
def described_file(path: str) -> dict[str, Any]:
    """A file line by line, each with its spans."""
    text = sources()[path].text
    return {"path": path, "lines": text.splitlines(), "spans": spans_of(text)}


def spans_of(text: str) -> list[list[Span]]:
    """The spans of each line, in order; a text over several lines has one on each."""
    lines = text.splitlines()
    spans: list[list[Span]] = [[] for _ in lines]
    defines = False
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = kind_of(token, defines)
        defines = token.string in ("def", "class")
        if kind is None:
            continue
        (first, start), (last, end) = token.start, token.end
        for number in range(first, last + 1):
            stop = end if number == last else len(lines[number - 1])
            begin = start if number == first else 0
            if begin < stop:
                spans[number - 1].append(Span(begin, stop, kind))
    return spans


def kind_of(token: tokenize.TokenInfo, defines: bool) -> str | None:
    """What a token is; `defines`: it comes behind `def` or `class`."""
    name = tokenize.tok_name[token.type]
    if name in TEXTS:
        return "string"
    if name in ("COMMENT", "NUMBER"):
        return name.lower()
    if name == "NAME":
        return "keyword" if keyword.iskeyword(token.string) else "defined" if defines else None
    return None
