"""HTTP to a server: few retries, a limit on all requests, and errors in words."""

import json
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from draftwood.errors import DraftwoodError, need
from draftwood.lab.endpoint.result import Asked

if TYPE_CHECKING:
    import httpx

RETRIES = 2
"""Further tries of a request that met a broken connection, or status 429 or 503."""

_LONGEST_WAIT = 10.0
"""Most seconds before a further try, whatever ``Retry-After`` says."""

_SHOWN = 200
"""Most characters of a server's message that are repeated."""


class Refused(Exception):  # noqa: N818 - an answer, not an error
    """A server refuses a request: it does not support a field, or a value of it."""


class Stopped(DraftwoodError):  # noqa: N818 - a kind of DraftwoodError
    """No more can be asked: the limit of requests is reached, or the key is no longer taken."""


class Failed(Exception):  # noqa: N818
    """A request failed: the server broke down over it, or does not answer.

    Attributes:
        request: that failed, if it was one for an answer.
    """

    def __init__(self, message: str, request: Asked | None = None) -> None:
        super().__init__(message)
        self.request = request


class Limit:
    """The most requests that are sent, retries included, to all servers together.

    Attributes:
        sent: requests so far.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self.sent = 0

    def take(self) -> None:
        """Count a request.

        Raises:
            Stopped: there were as many as are allowed.
        """
        with self._lock:
            if self.sent >= self._most:
                raise Stopped(
                    f"{self._most} requests were sent, retries included, and no more are allowed: "
                    "raise --max-requests, or lower --samples"
                )
            self.sent += 1


class Client:
    """Asks one server.

    Args:
        url: base URL of the API; ``/v1`` is added to one without a path.
        key: sent as a bearer token, if there is one.
        timeout: most seconds for a request and its whole answer.
        limit: counts the requests.

    Attributes:
        url: the base URL, without a password.

    Raises:
        DraftwoodError: httpx is missing, or the URL is none.
    """

    def __init__(self, url: str, key: str | None, timeout: float, limit: Limit) -> None:
        httpx: Any = need("httpx", "endpoint")
        self._errors: Any = httpx
        base = _base(httpx, url)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._key = key or ""
        self.url = str(base.copy_with(userinfo=b""))
        self._base = str(base)
        self._limit = limit
        self._timeout = timeout
        self._http: httpx.Client = httpx.Client(headers=headers, timeout=timeout)

    @property
    def has_key(self) -> bool:
        """Whether a key is sent."""
        return bool(self._key)

    @property
    def root(self) -> str:
        """The URL without ``/v1``, where servers have paths of their own."""
        return self._base.removesuffix("/v1")

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def get(self, url: str) -> "httpx.Response":
        """The response of a path below the base URL, or of a whole URL; not counted.

        Raises:
            Failed: the server does not answer.
        """
        try:
            return self._answered("GET", url)
        except self._errors.HTTPError as error:
            raise self._failed(_words(error)) from error

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The parsed answer to a request.

        Args:
            path: below the base URL, or a whole URL.
            body: sent as JSON.

        Raises:
            Refused: the server takes no such request.
            Failed: it broke down over it, or does not answer.
            Stopped: it needs another key, or no more requests are allowed.
        """
        response = self._sent(path, body)
        try:
            return response.json()
        except ValueError as error:
            shown = response.text[:_SHOWN]
            raise self._failed(f"the answer is not JSON: {shown!r}", path, body) from error

    def stream(self, path: str, body: Mapping[str, Any]) -> list[Any]:
        """The parsed events of a stream; see :meth:`post`."""
        lines = self._sent(path, {**body, "stream": True}).text.split("\n")
        events = [line[5:].strip() for line in lines if line.startswith("data:")]
        try:
            return [json.loads(event) for event in events if event != "[DONE]"]
        except ValueError as error:
            raise self._failed(f"an event is not JSON: {error}", path, body) from error

    def _whole(self, url: str) -> str:
        return url if "://" in url else f"{self._base}{url}"

    def _sent(self, path: str, body: Mapping[str, Any]) -> "httpx.Response":
        for further in reversed(range(RETRIES + 1)):
            self._limit.take()
            try:
                response = self._answered("POST", path, json=dict(body))
            except self._errors.TimeoutException as error:
                raise self._failed("no answer in time (--timeout)", path, body) from error
            except self._errors.HTTPError as error:
                if not further:
                    raise self._failed(_words(error), path, body) from error
                time.sleep(0.5)
                continue
            if further and response.status_code in (429, 503):
                time.sleep(_wait(response.headers.get("Retry-After")))
                continue
            return self._checked(response, path, body)
        raise AssertionError("the last try returns or raises")

    def _answered(self, method: str, path: str, **content: Any) -> "httpx.Response":
        """A whole answer. httpx limits the time of each read, and an answer may have many."""
        end = time.monotonic() + self._timeout
        parts: list[bytes] = []
        with self._http.stream(method, self._whole(path), **content) as response:
            for part in response.iter_raw():
                parts.append(part)
                if time.monotonic() > end:
                    raise self._errors.ReadTimeout("the answer is not complete in time")
        found: httpx.Response = self._errors.Response(
            response.status_code, headers=response.headers, content=b"".join(parts)
        )
        return found

    def _checked(
        self, response: "httpx.Response", path: str, body: Mapping[str, Any]
    ) -> "httpx.Response":
        status = response.status_code
        if status < 400:
            return response
        said = self.said(response)
        if status in (401, 403):
            raise Stopped(f"{self.url} needs another key (--api-key): {status}, {said}")
        if status == 429 or (status >= 500 and status != 501):
            raise self._failed(f"status {status}, {said}", path, body)
        raise Refused(f"status {status}, {said}")

    def said(self, response: "httpx.Response") -> str:
        """What the server says is wrong, in one line and without the key."""
        text = response.text
        with suppress(AttributeError, ValueError):
            found = response.json()
            error = found.get("error") or found
            text = str(error.get("message") or error.get("detail") or error)
        text = " ".join(text.split())
        text = text.replace(self._key, "...") if self._key else text
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

    def _failed(
        self, message: str, path: str = "", body: Mapping[str, Any] | None = None
    ) -> Failed:
        asked = None if body is None else Asked(f"{self.url}{path}", body, self.has_key)
        return Failed(f"{self.url}: {message}", asked)


def _base(httpx: Any, url: str) -> Any:
    try:
        found = httpx.URL(url.rstrip("/"))
    except httpx.InvalidURL as error:
        raise DraftwoodError(f"{url!r} is no URL: {error}") from error
    if found.scheme not in ("http", "https") or not found.host:
        raise DraftwoodError(f"{url!r} is no URL of a server: write http://HOST:PORT/v1")
    return found.copy_with(path="/v1") if found.path in ("", "/") else found


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _wait(header: str | None) -> float:
    try:
        return min(max(float(header or 1), 0.0), _LONGEST_WAIT)
    except ValueError:
        return 1.0
