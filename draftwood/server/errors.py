"""Errors in the form of the OpenAI API."""

import logging
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from draftwood.engine.thread import Busy, Closing
from draftwood.errors import DraftwoodError, GrammarError, RequestFailed

logger = logging.getLogger(__name__)

_LONGEST, _LEFT_OUT = 1024, " [...] "
"""Most characters of a message, and what stands for those that are left out."""

RETRY_SECONDS = 1
"""What ``Retry-After`` tells a client that found the queue full."""


class ApiError(Exception):
    """An error that a client gets.

    Args:
        status: of the response.
        message: what was wrong and what to do.
        param: the field that is wrong, if it is one.
        code: the API's name of the error, if it has one.
        headers: further ones of the response.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code = status, code
        # They may hold what the client sent.
        self.message = shortened(message)
        self.param = None if param is None else shortened(param)
        self.headers = headers

    def body(self) -> dict[str, Any]:
        """The JSON that says so."""
        kind = _KINDS.get(self.status, "invalid_request_error" if self.status < 500 else "")
        return {
            "error": {
                "message": self.message,
                "type": kind or "server_error",
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self) -> JSONResponse:
        """The response that says so."""
        return JSONResponse(self.body(), self.status, self.headers)


_KINDS = {
    401: "authentication_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
}


def shortened(text: str) -> str:
    """What is said of a request, which may hold what the client sent: if it is long, both ends."""
    if len(text) <= _LONGEST:
        return text
    half = (_LONGEST - len(_LEFT_OUT)) // 2
    return f"{text[:half]}{_LEFT_OUT}{text[-half:]}"


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """The client's mistake."""
    return ApiError(400, message, param=param, code=code)


def refused(param: str, reason: str) -> ApiError:
    """A field, or a value of it, that is known and not supported."""
    return ApiError(400, f"{param} is not supported: {reason}", param=param, code="unsupported")


def api_error(error: BaseException) -> ApiError:
    """The error of the API for an exception.

    Mistakes in what the client sent are its own; all else is the server's.
    """
    if isinstance(error, ApiError):
        return error
    if isinstance(error, Busy):
        headers = {"Retry-After": str(RETRY_SECONDS)}
        return ApiError(429, str(error), code="queue_full", headers=headers)
    if isinstance(error, Closing):
        return ApiError(503, str(error), code="stopping")
    if isinstance(error, RequestFailed) and isinstance(error.__cause__, GrammarError):
        return bad_request(f"the grammar cannot be kept to: {error.reason}")
    if isinstance(error, RequestFailed):
        logger.warning("a request failed: %s", error.reason)
        return ApiError(500, f"the request failed: {error.reason}")
    if isinstance(error, DraftwoodError):
        return bad_request(str(error), code=_code(str(error)))
    logger.error("a request failed", exc_info=error)
    return ApiError(500, f"{type(error).__name__}: {error}".removesuffix(": "))


def _code(message: str) -> str | None:
    return "context_length_exceeded" if "context holds" in message else None


async def on_api_error(_request: Request, error: Exception) -> JSONResponse:
    """Answer with an :class:`ApiError`."""
    return api_error(error).response()


async def on_http_error(request: Request, error: Exception) -> JSONResponse:
    """Answer with Starlette's own errors: an unknown path, a wrong method."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    words = {
        404: f"there is no {path}: the paths of the API begin with /v1",
        405: f"{path} takes no {request.method}",
    }
    message = words.get(error.status_code, str(error.detail))
    return ApiError(error.status_code, message, headers=error.headers).response()
