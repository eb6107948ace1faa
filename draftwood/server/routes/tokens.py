"""``/tokenize`` and ``/detokenize``."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from draftwood.server.answer import json
from draftwood.server.chat_template import render
from draftwood.server.errors import bad_request
from draftwood.server.schemas.tokens import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
)
from draftwood.server.service import Service
from draftwood.server.sse import unless_disconnected
from draftwood.server.text import TextWorker

T = TypeVar("T")

_OF_MESSAGES = ("add_generation_prompt", "tools", "chat_template_kwargs")
"""Fields of ``/tokenize`` that only the chat template reads."""


async def tokenize(request: Request) -> Response:
    """Token ids of a text or a conversation."""
    service: Service = request.app.state.service
    body = await service.body(request, TokenizeRequest)
    if (body.prompt is None) == (body.messages is None):
        raise bad_request("give either prompt or messages", "prompt")
    if body.messages is None:
        for name in _OF_MESSAGES:
            if getattr(body, name) is not None:
                raise bad_request(f"{name} needs messages: a prompt is no conversation", name)
    return json(await _aside(request, _tokenized, body, service.settings.context))


async def detokenize(request: Request) -> Response:
    """The text of token ids."""
    service: Service = request.app.state.service
    body = await service.body(request, DetokenizeRequest)
    return json(await _aside(request, _detokenized, body.tokens))


def check_ids(ids: Sequence[int], vocabulary: int, field: str) -> None:
    """Refuse ids that are no tokens.

    Raises:
        ApiError: one is not.
    """
    wrong = next((each for each in ids if not 0 <= each < vocabulary), None)
    if wrong is not None:
        raise bad_request(f"{field} holds {wrong}, and token ids are 0 to {vocabulary - 1}", field)


async def _aside(request: Request, function: Callable[..., T], *args: Any) -> T:
    """Call a function of a text worker whose work no prompt waits for.

    Raises:
        Busy: many such calls wait.
    """
    service: Service = request.app.state.service
    with service.tokenizing.place():
        text = await service.text.aside()
        return await unless_disconnected(request, text.run(function, text, *args))


def _detokenized(text: TextWorker, tokens: Sequence[int]) -> DetokenizeResponse:
    check_ids(tokens, text.vocabulary, "tokens")
    return DetokenizeResponse(text.decode(tokens))


def _tokenized(text: TextWorker, body: TokenizeRequest, context: int) -> TokenizeResponse:
    prompt = body.prompt
    if body.messages is not None:
        prompt = render(
            body.messages,
            text,
            body.tools or (),
            prompt=body.add_generation_prompt is not False,
            extra=body.chat_template_kwargs or {},
        )
    special = body.add_special_tokens
    ids = text.encode(prompt or "", special=body.messages is None if special is None else special)
    names = text.names(ids) if body.return_token_strs else None
    return TokenizeResponse(len(ids), context, ids, names)
