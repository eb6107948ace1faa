"""The body of a request: read up to a limit, decoded into a struct, refused by name."""

import asyncio
import re
from typing import TypeVar, get_type_hints

import msgspec
from starlette.requests import Request

from draftwood.errors import did_you_mean
from draftwood.server.errors import ApiError, bad_request, shortened
from draftwood.server.settings import ServeSettings

T = TypeVar("T", bound=msgspec.Struct)

_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`(?: - at `\$\.?(.*)`)?")
_JSON = re.compile(r"\s*application/([\w.-]+\+)?json\s*(;|$)", re.IGNORECASE)
_PLACED = re.compile(r"(.*) - at `(?:key` in `)?\$\.?(.*)`", re.DOTALL)


async def read(request: Request, settings: ServeSettings) -> bytes:
    """The body's bytes.

    Raises:
        ApiError: they are not said to be JSON, there are more than the server takes, or they do not
            come in time.
    """
    kind = request.headers.get("content-type", "of no type")
    if not _JSON.match(kind):
        # A page of another origin may post other types, or none, without asking the server first.
        raise ApiError(
            415,
            f"the body is {shortened(kind)!r}: send JSON with the header 'Content-Type: "
            "application/json'",
            code="unsupported_media_type",
        )
    most = settings.max_body
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        raise _too_large(most)
    found = bytearray()
    try:
        async with asyncio.timeout(settings.body_within):
            async for chunk in request.stream():
                found += chunk
                if len(found) > most:
                    raise _too_large(most)
    except TimeoutError as error:
        raise ApiError(
            408,
            f"the body did not come within {settings.body_within:g} seconds: send it faster",
            code="timeout",
            headers={"Connection": "close"},
        ) from error
    return bytes(found)


def decode(body: bytes, kind: type[T]) -> T:
    """The body as a struct.

    Raises:
        ApiError: it is not JSON, or a field is unknown or of a wrong type.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _misfit(shortened(str(error)), kind) from error
    except UnicodeDecodeError as error:
        raise bad_request(f"the body is not valid UTF-8: {error.reason}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad_request(f"the body is not valid JSON: {error}") from error


def _misfit(message: str, kind: type[msgspec.Struct]) -> ApiError:
    """The error of a body that is JSON, but not the JSON that is expected."""
    unknown = _UNKNOWN.fullmatch(message)
    if unknown is not None:
        name, place = unknown[1], unknown[2] or ""
        near = "" if place else did_you_mean(name, get_type_hints(kind))
        inside = f" in {place}" if place else ""
        advice = near or "it is not known here, and no field is ignored: leave it out"
        return bad_request(f"unknown field {name!r}{inside}: {advice}", name, "unknown_field")
    placed = _PLACED.fullmatch(message)
    words, place = (placed[1], placed[2]) if placed else (message, "")
    said = words[:1].lower() + words[1:].replace("`", "'")
    field = re.split(r"[.\[]", place)[0] or None
    return bad_request(f"{place or 'the body'}: {said}", field)


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"the body has more than {most} bytes (--max-body)", code="too_large")
