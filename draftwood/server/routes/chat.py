"""``/v1/chat/completions``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from draftwood.engine.request import Request as EngineRequest
from draftwood.server.chat_answer import ChatAnswer
from draftwood.server.chat_template import render_chat
from draftwood.server.errors import bad_request
from draftwood.server.parsing import AnswerParser, MakeParser, PlainAnswer
from draftwood.server.routes.tokens import check_ids
from draftwood.server.sampling import MOST_LOGPROBS, Wanted
from draftwood.server.schemas.chat import ChatRequest
from draftwood.server.service import Service, arrival
from draftwood.server.sse import unless_disconnected
from draftwood.server.structured import grammar_field
from draftwood.server.tools import asks_grammar, tool_grammar, tools_of
from draftwood.server.values import check_values


async def chat_completions(request: Request) -> Response:
    """Answer a conversation."""
    arrived = arrival()
    service: Service = request.app.state.service
    service.room.check()
    body = await service.body(request, ChatRequest)
    tools = _checked(body, service)
    with service.room.of(body.value("n", 1)):
        owner = request.state.owner
        found = await unless_disconnected(request, _prepared(body, service, tools, owner))
    generation = service.generate(found.requests, arrived)
    number = request.state.request_id
    answer = ChatAnswer(service, body, generation, number, len(found.requests[0].ids))
    answer.parsers = found.parsers
    return await answer.response(request)


@dataclass(frozen=True)
class _Prompt:
    text: str
    ids: Sequence[int]


@dataclass(frozen=True)
class _Prepared:
    """The engine's requests, one for each choice, and what parses their answers."""

    requests: Sequence[EngineRequest]
    parsers: Sequence[AnswerParser]


async def _prepared(
    body: ChatRequest, service: Service, tools: Sequence[dict[str, Any]], owner: str
) -> _Prepared:
    """Tokenize the conversation and compile the grammar."""
    prompt = await service.text.run(_prompt, body, service, tools)
    grammar = None
    if asks_grammar(body, tools):
        given = (body, tools, service.call_form, prompt.text)
        grammar = await service.compiled(tool_grammar, *given)
    # Of a text in a given form nothing is split off, even if the prompt has begun the reasoning.
    parses = body.value("skip_special_tokens", default=True) and not body.has_form
    make = service.parser if parses else None
    maximum = body.max_completion_tokens
    wanted = Wanted(
        max_tokens=body.max_tokens if maximum is None else maximum,
        default_tokens=service.settings.max_tokens,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        prompt_field="messages",
        parses=make is not None,
        tags=service.tags,
        grammar=grammar,
        limit_field="max_tokens" if maximum is None else "max_completion_tokens",
    )
    requests = await service.requests(body, [prompt.ids], wanted, owner)
    await service.check_grammar(requests[0], "tools" if wanted.grammar else grammar_field(body))
    parsers = await service.text.run(_parsers, len(requests), make, prompt, tools)
    return _Prepared(requests, parsers)


def _parsers(
    count: int, make: MakeParser | None, prompt: _Prompt, tools: Sequence[dict[str, Any]]
) -> Sequence[AnswerParser]:
    """What tells text, reasoning and calls of so many choices apart."""
    if make is None:
        return [PlainAnswer() for _ in range(count)]
    try:
        return [make(prompt.text, tools) for _ in range(count)]
    except Exception as error:  # transformers parses the end of the prompt
        raise bad_request(
            f"an answer to this prompt cannot be parsed: {error}", "messages"
        ) from error


def _prompt(body: ChatRequest, service: Service, tools: Sequence[dict[str, Any]]) -> _Prompt:
    """The prompt; stop tokens that are none are refused."""
    check_ids(body.stop_token_ids or (), service.text.vocabulary, "stop_token_ids")
    text = render_chat(body, service.text, tools)
    service.text.check_length(text, service.settings.context, "messages")
    return _Prompt(text, service.text.encode(text, special=False))


def _checked(body: ChatRequest, service: Service) -> Sequence[dict[str, Any]]:
    """Refuse what cannot be honoured; returns the tools that the model may call."""
    check_values(body)
    if body.top_logprobs:  # some clients send 0 with every request
        if not body.logprobs:
            raise bad_request("top_logprobs needs logprobs: true", "top_logprobs")
        if not 0 <= body.top_logprobs <= MOST_LOGPROBS:
            raise bad_request(
                f"top_logprobs is {body.top_logprobs}: ask for 0 to {MOST_LOGPROBS}", "top_logprobs"
            )
    return tools_of(body, parsed=service.parser is not None)
