"""Middleware: counts responses by route, method and status, refused requests included."""

from collections.abc import Callable, Mapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

Count = Callable[[str, str, int], None]
"""Counts a response: path of its route, method, status."""

OTHER = "none"
"""Handler of a request that reached no route."""


class Counted:
    """Counts every response when its status is known.

    Args:
        app: what is asked.
        count: called once for each response.
        paths: path of each route, by its endpoint.
    """

    def __init__(self, app: ASGIApp, count: Count, paths: Mapping[Any, str]) -> None:
        self._app = app
        self._count = count
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                # The router has put the endpoint into the scope.
                path = self._paths.get(scope.get("endpoint"), OTHER)
                self._count(path, scope["method"], message["status"])
            await send(message)

        await self._app(scope, receive, counted)
