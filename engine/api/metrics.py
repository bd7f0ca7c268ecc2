"""GET /metrics: what an engine's log adds up to, for Prometheus.

Box `client-req`, its other end. vLLM 0.26.0: `vllm/entrypoints/serve/instrumentator/metrics.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fastapi import Request
from starlette.responses import Response

from engine.api.access import known_key
from engine.api.errors import answer_error
from engine.api.protocol import ApiError
from engine.sessions import Sessions


def metrics_of(sessions: Sessions) -> Callable[[Request], Awaitable[Response]]:
    """The answer to GET /metrics: of the key's engine, or of the shared one.

    An engine that is not there yet is not made for it; then there is the process alone.
    """

    async def metrics(request: Request) -> Response:
        # prometheus-client takes a while to import, and most servers are never scraped.
        from engine.metrics.prometheus import exposition

        try:
            key = await known_key(sessions, request)
        except ApiError as error:
            return await answer_error(request, error)
        engine = sessions.existing(key)
        stats = engine.stats if engine is not None else None
        body, content_type = await asyncio.to_thread(
            exposition, stats, request.headers.get("accept", "")
        )
        return Response(body, headers={"Content-Type": content_type})

    return metrics
