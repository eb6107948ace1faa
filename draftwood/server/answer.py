"""A response to a request for completions: whole, or as a stream of chunks."""

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from copy import copy
from typing import ClassVar

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from draftwood.engine.request import Completion, Delta
from draftwood.server.generation import Generation
from draftwood.server.schemas.answers import (
    ChatChunkChoice,
    Chunk,
    Metrics,
    PromptTokensDetails,
    SpeculativeStats,
    TextChoice,
    TokenSource,
    Usage,
)
from draftwood.server.schemas.fields import SamplingFields
from draftwood.server.service import Service
from draftwood.server.speculation import speculative_stats
from draftwood.server.sse import EventStream, unless_disconnected


class Answer(ABC):
    """What all responses have: an id, a model, usage and statistics.

    Args:
        service: decodes.
        body: of the request.
        generation: its choices.
        request_id: of the HTTP request.
        prompt_tokens: of all prompts.
    """

    prefix: ClassVar[str]
    """Begin of the response's id."""

    chunk_object: ClassVar[str]
    """``object`` of a chunk."""

    def __init__(
        self,
        service: Service,
        body: SamplingFields,
        generation: Generation,
        request_id: str,
        prompt_tokens: int,
    ) -> None:
        self.service, self.generation = service, generation
        self.id = f"{self.prefix}-{request_id}"
        self.created = int(time.time())
        self.model = body.model or service.settings.names[0]
        self._streams = bool(body.stream)
        options = body.stream_options
        self._reports_usage = options is not None and bool(options.include_usage)
        self._always = options is not None and bool(options.continuous_usage_stats)
        self._asks_sources = bool(body.token_sources)
        self._usage = Usage(prompt_tokens, 0, prompt_tokens)
        self._each, self._cached = body.value("n", 1), 0
        self._stats: list[SpeculativeStats] = []

    @abstractmethod
    async def whole(self) -> msgspec.Struct:
        """The response, once all choices have ended."""

    @abstractmethod
    def beginning(self, index: int) -> Chunk | None:
        """What the stream of a choice begins with, before its first token; None: nothing."""

    @abstractmethod
    def chunks(self, index: int, event: Delta | Completion) -> Iterator[Chunk]:
        """The chunks of an event of a choice, whose tokens are counted."""

    async def response(self, request: Request) -> Response:
        """Wait until the engine has taken the request, then stream, or wait for its end.

        Raises:
            Exception: the engine refuses the request, or a choice fails before a stream begins.
        """
        try:
            await unless_disconnected(request, self.generation.accepted())
            if not self._streams:
                return json(await unless_disconnected(request, self.whole()))
        except BaseException:
            self.generation.close()
            raise
        return EventStream(self._stream(), self.generation.close)

    async def _stream(self) -> AsyncIterator[Chunk]:
        begun = set[int]()
        async for index, event in self.generation.events():
            # Not before its first token: by the first chunk, clients measure the time to that.
            if index not in begun and (chunk := self.beginning(index)) is not None:
                yield chunk
            begun.add(index)
            self._count(index, event)
            for chunk in self.chunks(index, event):
                yield chunk
        if self._reports_usage:
            last = self.chunk([])
            last.usage, last.metrics = self.usage, self.metrics
            yield last

    def chunk(self, choices: Sequence[ChatChunkChoice] | Sequence[TextChoice]) -> Chunk:
        """A chunk with what is new in some choices."""
        return Chunk(
            id=self.id,
            object=self.chunk_object,
            created=self.created,
            model=self.model,
            choices=choices,
            usage=copy(self._usage) if self._always else None if self._reports_usage else UNSET,
        )

    async def events(self) -> AsyncIterator[tuple[int, Delta | Completion]]:
        """Those of the choices; their tokens are counted."""
        async for index, event in self.generation.events():
            self._count(index, event)
            yield index, event

    def _count(self, index: int, event: Delta | Completion) -> None:
        """Count the tokens of an event of a choice."""
        if isinstance(event, Delta):
            self._usage.completion_tokens += len(event.tokens)
            self._usage.total_tokens += len(event.tokens)
        elif index % self._each == 0:  # the further choices of a prompt copy it from this one
            self._cached += event.cached_tokens

    def sources(self, *deltas: Delta) -> list[TokenSource] | msgspec.UnsetType:
        """The text and the source of each token, if the client asked for them."""
        if not self._asks_sources:
            return UNSET
        return [
            TokenSource(piece, source or None)
            for delta in deltas
            for piece, source in zip(delta.pieces, delta.sources, strict=True)
        ]

    def stats(self, completion: Completion) -> SpeculativeStats:
        """The statistics of a finished choice, which are kept for :attr:`metrics`."""
        self._stats.append(speculative_stats(completion.tally, self.service.budget))
        return self._stats[-1]

    @property
    def usage(self) -> Usage:
        """Tokens of the prompts and of all choices, which have ended."""
        details = PromptTokensDetails(self._cached)
        return msgspec.structs.replace(self._usage, prompt_tokens_details=details)

    @property
    def metrics(self) -> Metrics | msgspec.UnsetType:
        """The statistics where vLLM has them: only of a response with one choice."""
        return Metrics(self._stats[0]) if len(self._stats) == 1 else UNSET


def json(content: msgspec.Struct) -> Response:
    """A struct as a response."""
    return Response(msgspec.json.encode(content), media_type="application/json")
