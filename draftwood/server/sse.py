"""Server-sent events, and work that ends when its client has gone."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from draftwood.server.errors import api_error

T = TypeVar("T")
logger = logging.getLogger(__name__)

DONE = b"data: [DONE]\n\n"
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # for proxies


class EventStream(StreamingResponse):
    """A stream of objects as JSON, and ``[DONE]`` at its end.

    An exception becomes an event with an error.

    Args:
        chunks: the objects.
        close: called when the stream has ended, for whatever reason.
    """

    def __init__(self, chunks: AsyncIterator[Any], close: Callable[[], None]) -> None:
        super().__init__(_encoded(chunks), media_type="text/event-stream", headers=_HEADERS)
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream until it ends or the client goes."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._close()


async def _encoded(chunks: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    try:
        async for chunk in chunks:
            yield event(chunk)
    except Exception as error:  # noqa: BLE001 - the status has been sent, so this is the place
        yield event(api_error(error).body())
    yield DONE


def event(content: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(content) + b"\n\n"


async def unless_disconnected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of some work, which is cancelled when the client goes.

    The request's body must have been read.

    Raises:
        ClientDisconnect: the client has gone.
    """
    task, gone = asyncio.create_task(work), asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        gone.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
