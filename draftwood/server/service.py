"""What the routes of a server share: the engine's thread, the tokenizer, settings and metrics."""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, TypeVar

from starlette.requests import Request as HttpRequest

from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.engine.thread import EngineThread
from draftwood.errors import DraftwoodError
from draftwood.grammars.constraint import constraint_of
from draftwood.server.body import T, decode, read
from draftwood.server.errors import ApiError, bad_request
from draftwood.server.generation import Generation
from draftwood.server.metrics import ServerMetrics
from draftwood.server.parsing import MakeParser
from draftwood.server.room import Places, Room
from draftwood.server.sampling import Wanted, requests_of
from draftwood.server.schemas.fields import SamplingFields
from draftwood.server.settings import ServeSettings
from draftwood.server.text import TextWorker
from draftwood.server.tools import CallForm

R = TypeVar("R")

_TOKENIZING = 64
"""Most calls of ``/tokenize`` and ``/detokenize`` under way."""


@dataclass(frozen=True, eq=False)
class Service:
    """A served model.

    Attributes:
        thread: decodes.
        text: tokenizes.
        settings: of the server.
        metrics: of the server.
        eos: tokens that end an answer.
        parser: how answers of chats are parsed; None: they are text alone.
        tags: special tokens that it reads; None: all.
        call_form: how the model writes tool calls; None: in no way that a grammar could ask for.
        created: when the server started, in seconds since 1970.
        room: for choices that are being prepared.
        compiling: the thread on which grammars are made and compiled, so that neither prompts nor
            the event loop wait for them.
        tokenizing: places for calls that only tokenize.
    """

    thread: EngineThread
    text: TextWorker
    settings: ServeSettings
    metrics: ServerMetrics
    room: Room
    eos: frozenset[int]
    parser: MakeParser | None = None
    tags: Collection[int] | None = None
    call_form: CallForm | None = None
    created: int = field(default_factory=lambda: int(time.time()))
    compiling: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, "draftwood-grammars")
    )
    tokenizing: Places = field(default_factory=lambda: Places(_TOKENIZING))

    @property
    def budget(self) -> int:
        """Most nodes that a step drafts for one request."""
        return self.thread.engine.method.policy.budget

    async def body(self, request: HttpRequest, kind: type[T]) -> T:
        """The body of a request as a struct whose model is a served one.

        Raises:
            ApiError: it is too large, too slow, or not what is expected.
        """
        found = decode(await read(request, self.settings), kind)
        self.check_model(getattr(found, "model", None))
        return found

    def check_model(self, name: str | None) -> None:
        """Refuse a name that is not served.

        Raises:
            ApiError: it is not.
        """
        if name is not None and name not in self.settings.names:
            raise ApiError(
                404,
                f"the model {name!r} does not exist: this server has "
                f"{', '.join(self.settings.names)}",
                param="model",
                code="model_not_found",
            )

    async def compiled(self, function: Callable[..., R], *args: Any) -> R:
        """Call a function on the thread of grammars: a large schema takes seconds to check."""
        return await asyncio.get_running_loop().run_in_executor(self.compiling, function, *args)

    async def requests(
        self, body: SamplingFields, prompts: Sequence[Sequence[int]], wanted: Wanted, owner: str
    ) -> list[Request]:
        """:func:`draftwood.server.sampling.requests_of`, beside the event loop for a given form."""
        given = (body, prompts, wanted, self.settings, self.eos, owner)
        return await self.compiled(requests_of, *given) if body.has_form else requests_of(*given)

    async def check_grammar(self, request: Request, field: str) -> None:
        """Compile the grammar of a request beside the engine, which then finds it compiled.

        Args:
            request: of the engine.
            field: of the body, that the grammar comes from.

        Raises:
            ApiError: it cannot be compiled, or its library is not installed.
        """
        if request.grammar is None:
            return
        engine = self.thread.engine  # what is compiled is kept with its tokenizer
        given = (request.grammar, engine.tokenizer, self.text.vocabulary, request.ends)
        try:
            await self.compiled(constraint_of, *given)
        except DraftwoodError as error:
            raise bad_request(str(error), field) from error

    def generate(self, requests: Sequence[Request], arrived: float) -> Generation:
        """Begin to decode the choices of a response.

        Raises:
            Busy: the server holds too many now.
            Closing: it is stopping.
        """
        return Generation(self.thread, requests, self.metrics, arrived)

    def close(self) -> None:
        """Stop the engine and the workers."""
        self.thread.close()
        self.text.close()
        self.compiling.shutdown(wait=False, cancel_futures=True)


def started(
    engine: Engine,
    settings: ServeSettings,
    *,
    most: int | None,
    template: str | None = None,
    parser: MakeParser | None = None,
    tags: Collection[int] | None = None,
    call_form: CallForm | None = None,
    eos: frozenset[int] = frozenset(),
) -> Service:
    """A service on an engine, which gets its thread.

    Args:
        engine: has a tokenizer.
        settings: of the server.
        most: requests that may be held at once.
        template: chat template, in the place of the tokenizer's.
        parser: see :class:`Service`.
        tags: see :class:`Service`.
        call_form: see :class:`Service`.
        eos: see :class:`Service`.
    """
    assert engine.tokenizer is not None
    metrics = ServerMetrics(settings.metrics_names, settings.names[0])
    text = TextWorker(engine.tokenizer, template, engine.target.info.vocab_size)
    thread = EngineThread(engine, most=most, watch=metrics.watch)
    return Service(thread, text, settings, metrics, Room(thread), eos, parser, tags, call_form)


def arrival() -> float:
    """Now, on the clock that latencies are measured with."""
    return perf_counter()
