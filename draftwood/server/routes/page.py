"""``/`` and ``/page/NAME``: the page, which chats with the model and shows what drafting does."""

from collections.abc import Mapping
from pathlib import Path, PurePath
from types import MappingProxyType

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

_DIRECTORY = Path(__file__).parents[1] / "page"
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}

FILES: Mapping[str, bytes] = MappingProxyType(
    {path.name: path.read_bytes() for path in _DIRECTORY.iterdir() if path.suffix in _TYPES}
)
"""The page's files by name. They need no key: the page asks for it."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


async def index(_request: Request) -> Response:
    """The page itself."""
    return _response("index.html")


async def part(request: Request) -> Response:
    """A file that the page needs."""
    return _response(request.path_params["name"])


def _response(name: str) -> Response:
    if name not in FILES:
        raise HTTPException(404)
    return Response(FILES[name], media_type=_TYPES[PurePath(name).suffix], headers=HEADERS)
