"""The ASGI application: its routes, and what is around them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from draftwood.errors import DraftwoodError
from draftwood.server.access import Access
from draftwood.server.counted import Counted
from draftwood.server.errors import ApiError, on_api_error, on_http_error
from draftwood.server.routes import chat, completions, page, tokens, watching
from draftwood.server.service import Service
from draftwood.server.unexpected import Unexpected

ROUTES = (
    Route("/", page.index),
    Route("/page/{name}", page.part),
    Route("/v1/chat/completions", chat.chat_completions, methods=["POST"]),
    Route("/v1/completions", completions.completions, methods=["POST"]),
    Route("/v1/models", watching.models),
    Route("/v1/models/{name:path}", watching.model),
    Route("/tokenize", tokens.tokenize, methods=["POST"]),
    Route("/detokenize", tokens.detokenize, methods=["POST"]),
    Route("/health", watching.health),
    Route("/metrics", watching.metrics),
    Route("/stats", watching.stats),
    Route("/version", watching.version),
)


def application(service: Service) -> Starlette:
    """The application that serves a model.

    The service is closed as the application's lifespan ends, for servers that run it.
    """
    paths = {route.endpoint: route.path for route in ROUTES}

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        service.close()

    app = Starlette(
        routes=ROUTES,
        lifespan=lifespan,
        middleware=[
            Middleware(Counted, count=service.metrics.answered, paths=paths),
            *_cors(service.settings.allowed_origins),
            Middleware(Access, api_keys=service.settings.api_keys),
            Middleware(Unexpected),
        ],
        exception_handlers={
            HTTPException: on_http_error,
            ClientDisconnect: _on_disconnect,
            ApiError: on_api_error,
            DraftwoodError: on_api_error,
        },
    )
    app.state.service = service
    return app


def _cors(origins: Sequence[str]) -> list[Middleware]:
    """Lets pages of some origins ask; before the key is asked for, which browsers send later."""
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=("GET", "HEAD", "POST"),
            allow_headers=("*",),
            expose_headers=("X-Request-Id", "Retry-After"),
        )
    ]


async def _on_disconnect(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it
