"""A visit to the page itself: Streamlit's websocket, with nobody to draw what comes."""

from __future__ import annotations

import json

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import connect

FINISHED = ForwardMsg.ScriptFinishedStatus.FINISHED_SUCCESSFULLY


class PageFailed(RuntimeError):
    """The page's script did not end well."""


async def visit_page(url: str, runs: int) -> int:
    """Open the page, have its script run so often, and leave; how many messages came.

    Raises PageFailed where a run ends otherwise than well, or shows an exception.
    """
    messages = 0
    address = url.replace("http", "ws", 1) + "/_stcore/stream"
    async with connect(address, subprotocols=["streamlit"], origin=url, max_size=None) as socket:  # type: ignore[arg-type, list-item]
        for _ in range(runs):
            rerun = BackMsg()
            rerun.rerun_script.query_string = ""
            await socket.send(rerun.SerializeToString())
            while True:
                message = ForwardMsg.FromString(await socket.recv(decode=False))
                messages += 1
                if message.WhichOneof("type") == "script_finished":
                    if message.script_finished != FINISHED:
                        raise PageFailed(f"the script ended with {message.script_finished}")
                    break
                if message.delta.new_element.WhichOneof("type") == "exception":
                    raise PageFailed(json.dumps(message.delta.new_element.exception.message))
    return messages
