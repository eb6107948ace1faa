"""``/v1/models``, ``/health``, ``/metrics``, ``/stats`` and ``/version``."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from draftwood import __version__
from draftwood.server.metrics import CONTENT_TYPE
from draftwood.server.schemas.stats import Stats
from draftwood.server.service import Service


async def models(request: Request) -> Response:
    """The served model, under all its names."""
    service: Service = request.app.state.service
    found = [_model(service, name) for name in service.settings.names]
    return JSONResponse({"object": "list", "data": found})


async def model(request: Request) -> Response:
    """One name of the served model."""
    service: Service = request.app.state.service
    name = request.path_params["name"]
    if not name:  # a path that ends with a slash
        return await models(request)
    service.check_model(name)
    return JSONResponse(_model(service, name))


async def health(request: Request) -> Response:
    """200 if new requests are decoded; 503 while the server stops and if its engine has died."""
    thread = request.app.state.service.thread
    status = "ok" if thread.alive else "dead"
    status = "stopping" if thread.alive and thread.draining else status
    stats = thread.stats()
    return JSONResponse(
        {"status": status, "running": stats.running, "waiting": stats.waiting},
        200 if status == "ok" else 503,
    )


async def metrics(request: Request) -> Response:
    """All metrics, for Prometheus."""
    service: Service = request.app.state.service
    page = service.metrics.page(service.thread.stats())
    return Response(page, headers={"Content-Type": CONTENT_TYPE})


async def stats(request: Request) -> Response:
    """The figures of the server now, and the sums of its steps so far."""
    service: Service = request.app.state.service
    engine, tally = service.thread.stats(), service.metrics.tally
    found = Stats(
        model=service.settings.names[0],
        method=service.thread.engine.method.name,
        has_chat_template=service.text.template is not None,
        running=engine.running,
        waiting=engine.waiting,
        cache_usage=engine.cache_usage,
        price=engine.price,
        prefix_queries=engine.prefix_queries,
        prefix_hits=engine.prefix_hits,
        prefix_bytes=engine.prefix_bytes,
        request_steps=tally.steps,
        committed_tokens=tally.committed,
        draft_tokens=tally.drafted,
        accepted_draft_tokens=tally.accepted,
        sources=dict(tally.accepted_by_source),
    )
    return Response(msgspec.json.encode(found), media_type="application/json")


async def version(_request: Request) -> Response:
    """Draftwood's version."""
    return JSONResponse({"version": __version__})


def _model(service: Service, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": service.created,
        "owned_by": "draftwood",
        "root": service.settings.root,
        "parent": None,
        "max_model_len": service.settings.context,
    }
