"""Middleware: answers an exception that is nobody's answer, as an error of the server.

It stands inside of what counts responses and gives them ids. Starlette's own place for this is
outside of both.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from draftwood.server.errors import api_error


class Unexpected:
    """Answers such an exception with status 500.

    One that comes after the response has begun is raised: it can only end the connection.

    Args:
        app: what is asked.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            if begun or scope["type"] != "http":
                raise
            await api_error(error).response()(scope, receive, send)
