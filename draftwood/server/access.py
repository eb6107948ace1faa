"""Middleware: the key that clients must give, and the id of each request."""

import hashlib
import hmac
import re
import uuid
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from draftwood.server.errors import ApiError

OPEN_PATHS = ("/health", "/metrics", "/")
"""They need no key, so that probes and Prometheus can be kept simple; they tell no text."""

_PAGE = "/page/"
"""What the paths of the page's own files begin with; the page asks for the key."""

_ID = re.compile(r"[!-~]{1,128}")


class Access:
    """Asks for a key, and gives every request an id.

    The id is the client's ``X-Request-Id`` if it sends one of up to 128 printable characters. The
    response has it too.

    Args:
        app: what is asked then.
        api_keys: one of them must come as ``Authorization: Bearer KEY``; empty: none is needed.
    """

    def __init__(self, app: ASGIApp, api_keys: Sequence[str]) -> None:
        self._app = app
        self._keys = [key.encode() for key in api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        number = given if _ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = number

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Request-Id"] = number
            await send(message)

        authorization = headers.get("authorization", "")
        scope["state"]["owner"] = owner_of(authorization) if self._keys else ""
        # Below a path at which another application has this one, the router leaves that path out.
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if self._admits(path, authorization):
            await self._app(scope, receive, named)
        else:
            error = ApiError(
                401,
                "a key of this server is needed: send it as 'Authorization: Bearer KEY'",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
            await error.response()(scope, receive, named)

    def _admits(self, path: str, authorization: str) -> bool:
        if not self._keys or path in OPEN_PATHS or path.startswith(_PAGE):
            return True
        scheme, given = authorization.partition(" ")[0], _key(authorization)
        # All are compared, so that the time tells nothing.
        fits = [hmac.compare_digest(given, each) for each in self._keys]
        return scheme.lower() == "bearer" and any(fits)


def owner_of(authorization: str) -> str:
    """A name of the client with this key, from which the key cannot be told."""
    return hashlib.sha256(_key(authorization)).hexdigest()[:32]


def _key(authorization: str) -> bytes:
    return authorization.partition(" ")[2].strip().encode("utf-8", "replace")
