"""``/v1/completions``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from draftwood.engine.logprobs import TokenLogprob
from draftwood.engine.request import Completion, Delta
from draftwood.engine.request import Request as EngineRequest
from draftwood.server.answer import Answer
from draftwood.server.errors import bad_request, refused
from draftwood.server.logprobs import text_logprobs
from draftwood.server.routes.tokens import check_ids
from draftwood.server.sampling import MOST_LOGPROBS, Wanted
from draftwood.server.schemas.answers import (
    Chunk,
    TextChoice,
    TextCompletion,
    TextLogprobs,
    finish_reason,
)
from draftwood.server.schemas.completion import CompletionRequest
from draftwood.server.service import Service, arrival
from draftwood.server.sse import unless_disconnected
from draftwood.server.structured import grammar_field
from draftwood.server.values import check_values

_MAX_TOKENS = 16
"""The API's default."""


async def completions(request: Request) -> Response:
    """Continue prompts."""
    arrived = arrival()
    service: Service = request.app.state.service
    service.room.check()
    body = await service.body(request, CompletionRequest)
    _check(body)
    with service.room.of(len(_listed(body)) * body.value("n", 1)):
        owner = request.state.owner
        prompts, requests = await unless_disconnected(request, _prepared(body, service, owner))
    generation = service.generate(requests, arrived)
    number = request.state.request_id
    answer = TextAnswer(service, body, generation, number, sum(len(each.ids) for each in prompts))
    answer.choices = [_Choice(each.echoed) for each in prompts for _ in range(body.value("n", 1))]
    return await answer.response(request)


@dataclass(frozen=True)
class _Prompt:
    """A prompt as token ids, and its text if that is echoed."""

    ids: Sequence[int]
    echoed: str


async def _prepared(
    body: CompletionRequest, service: Service, owner: str
) -> tuple[list[_Prompt], list[EngineRequest]]:
    """Tokenize the prompts and compile the grammar; a request for each choice of each prompt."""
    prompts = await service.text.run(_prompts, body, service)
    wanted = Wanted(body.max_tokens, _MAX_TOKENS, body.logprobs, "prompt")
    ids = [each.ids for each in prompts]
    requests = await service.requests(body, ids, wanted, owner)
    await service.check_grammar(requests[0], grammar_field(body))
    return prompts, requests


def _check(body: CompletionRequest) -> None:
    check_values(body)
    if body.best_of not in (None, body.value("n", 1)):
        raise refused("best_of", "all n choices are returned")
    if body.logprobs is not None and not 0 <= body.logprobs <= MOST_LOGPROBS:
        raise bad_request(f"logprobs is {body.logprobs}: ask for 0 to {MOST_LOGPROBS}", "logprobs")
    if body.echo and body.logprobs is not None:
        raise refused("echo with logprobs", "prompts have no log probabilities")


def _listed(body: CompletionRequest) -> Sequence[Any]:
    """The prompts, as they were given."""
    given: Sequence[Any] = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    return [given] if given and all(isinstance(each, int) for each in given) else given


def _prompts(body: CompletionRequest, service: Service) -> list[_Prompt]:
    """The prompts, each as token ids; stop tokens that are none are refused."""
    check_ids(body.stop_token_ids or (), service.text.vocabulary, "stop_token_ids")
    given = _listed(body)
    if {type(each) for each in given} not in ({str}, {list}):
        raise bad_request(
            "prompt: give text, token ids, a list of texts or a list of lists of ids", "prompt"
        )
    return [_prompt(each, body, service) for each in given]


def _prompt(given: str | list[int], body: CompletionRequest, service: Service) -> _Prompt:
    if isinstance(given, str):
        service.text.check_length(given, service.settings.context, "prompt")
        special = body.value("add_special_tokens", default=True)
        return _Prompt(service.text.encode(given, special=special), given if body.echo else "")
    check_ids(given, service.text.vocabulary, "prompt")
    fits = len(given) < service.settings.context  # else it is refused, and its text not needed
    return _Prompt(given, service.text.decode(given) if body.echo and fits else "")


@dataclass(eq=False)
class _Choice:
    """A choice so far: its text with the echoed prompt, as pieces, and log probabilities."""

    echoed: str
    pieces: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    deltas: list[Delta] = field(default_factory=list)
    length: int = 0

    def take(self, delta: Delta) -> int:
        """Add new tokens; returns how many characters there were before them."""
        before = len(self.echoed) + self.length
        self.length += sum(map(len, delta.pieces))
        self.pieces += delta.pieces
        self.logprobs += delta.logprobs
        self.deltas.append(delta)
        return before


class TextAnswer(Answer):
    """The continuations of prompts."""

    prefix = "cmpl"
    chunk_object = "text_completion"
    choices: Sequence[_Choice]

    async def whole(self) -> TextCompletion:
        """See :class:`Answer`."""
        found = [TextChoice(index=index, text="") for index, _ in enumerate(self.choices)]
        async for index, event in self.events():
            choice = self.choices[index]
            if isinstance(event, Delta):
                choice.take(event)
                continue
            found[index] = TextChoice(
                index=index,
                text=choice.echoed + "".join(choice.pieces),
                logprobs=self._logprobs(choice.logprobs, choice.pieces, len(choice.echoed)),
                finish_reason=finish_reason(event),
                speculative_decoding_stats=self.stats(event),
                token_sources=self.sources(*choice.deltas),
            )
        return TextCompletion(
            id=self.id,
            created=self.created,
            model=self.model,
            choices=found,
            usage=self.usage,
            metrics=self.metrics,
        )

    def beginning(self, index: int) -> Chunk | None:
        """See :class:`Answer`."""
        echoed = self.choices[index].echoed
        return self.chunk([TextChoice(index=index, text=echoed)]) if echoed else None

    def chunks(self, index: int, event: Delta | Completion) -> Iterator[Chunk]:
        """See :class:`Answer`."""
        if isinstance(event, Delta):
            begin = self.choices[index].take(event)
            found = TextChoice(
                index=index,
                text="".join(event.pieces),
                logprobs=self._logprobs(event.logprobs, event.pieces, begin),
                token_sources=self.sources(event),
            )
            if found.text or found.logprobs or found.token_sources:
                yield self.chunk([found])
        else:
            reason, stats = finish_reason(event), self.stats(event)
            last = TextChoice(index=index, text="", finish_reason=reason)
            last.speculative_decoding_stats = stats
            yield self.chunk([last])

    def _logprobs(
        self, found: Sequence[TokenLogprob], pieces: Sequence[str], begin: int
    ) -> TextLogprobs | None:
        return text_logprobs(found, pieces, begin, self.service.text) if found else None
