"""Throughput at a given concurrency: so many users, each with one request at a time.

A user sends the next prompt of the list when the last one is answered, turn by turn in a dialogue
(with the method's own answers). The engine batches continuously. Times of a request begin when it
is sent. At the end of the list fewer users are busy; the duration includes that.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median, median_low
from time import perf_counter
from typing import TypeVar

import numpy as np

from draftwood.costs.busy import Others, watched
from draftwood.engine.engine import Engine
from draftwood.engine.request import Completion, Finished, Request
from draftwood.errors import DraftwoodError
from draftwood.lab.bench.contexts import Contexts
from draftwood.lab.bench.measure import Decoding, Item

M = TypeVar("M")


@dataclass(frozen=True)
class Served:
    """An answered prompt, over all its turns; times in seconds.

    Attributes:
        id, task: of the prompt.
        tokens: output tokens of each turn.
        ttft: time to the first token of the first turn.
        seconds: time from the first request to the last token.
        steps, committed: target calls after prefill, and the tokens they gave.
        prompt_tokens: tokens of the first turn's context.
    """

    id: str
    task: str
    tokens: tuple[tuple[int, ...], ...]
    ttft: float
    seconds: float
    steps: int
    committed: int
    prompt_tokens: int

    @property
    def count(self) -> int:
        """Output tokens of all turns."""
        return sum(map(len, self.tokens))


@dataclass(frozen=True)
class Spread:
    """Median, 90th and 99th percentile over requests; None without requests."""

    p50: float | None
    p90: float | None
    p99: float | None


@dataclass(frozen=True)
class CategoryFigures:
    """Figures of the prompts of one category.

    Attributes:
        requests, output_tokens: prompts and the tokens of their answers.
        tokens_per_second_per_user: median of a request's output tokens over its seconds.
        mean_acceptance_length: committed tokens over target calls; None without steps.
    """

    requests: int
    output_tokens: int
    tokens_per_second_per_user: float
    mean_acceptance_length: float | None


@dataclass(frozen=True)
class ThroughputFigures:
    """Figures of one method at one concurrency.

    Attributes:
        concurrency: users.
        duration: seconds from the first request to the last answer.
        tokens_per_second: output tokens of all users over the duration.
        ttft_ms: time to the first token, queueing and prefill included.
        tpot_ms: time per output token after the first turn's first one.
        latency_ms: time to the last token of the last turn.
        all: over all prompts.
        by_category: by the prompts' tasks.
        identical: prompts whose tokens are those of plain decoding; None if not compared.
        of_passes: tokens per second of each pass; the other figures are of the median one.
    """

    concurrency: int
    duration: float
    tokens_per_second: float
    ttft_ms: Spread
    tpot_ms: Spread
    latency_ms: Spread
    all: CategoryFigures
    by_category: dict[str, CategoryFigures]
    identical: int | None = None
    of_passes: tuple[float, ...] = ()


def serve(
    engine: Engine,
    items: Sequence[Item],
    contexts: Contexts,
    decoding: Decoding,
    concurrency: int,
    clock: Callable[[], float] = perf_counter,
) -> tuple[list[Served], float]:
    """Answer all prompts with so many users; returns the answers, in order, and the seconds.

    Raises:
        DraftwoodError: a request failed.
    """
    waiting = iter(enumerate(items))
    users: dict[int, _User] = {}
    found: dict[int, Served] = {}
    began = clock()

    def send(user: "_User") -> None:
        users[engine.add(user.request(contexts, decoding))] = user

    for user in _arriving(waiting, concurrency, clock):
        send(user)
    while engine.busy:
        for event in engine.step():
            if not isinstance(event, Finished):
                continue
            user = users.pop(event.request_id)
            user.heard(event.completion)
            if user.asks:
                send(user)
                continue
            found[user.number] = user.served(clock())
            for arriving in _arriving(waiting, 1, clock):
                send(arriving)
    return [found[number] for number in sorted(found)], clock() - began


def _arriving(
    waiting: Iterator[tuple[int, Item]], count: int, clock: Callable[[], float]
) -> Iterator["_User"]:
    for _ in range(count):
        following = next(waiting, None)
        if following is None:
            return
        yield _User(*following, clock())


class _User:
    """One prompt on its way through its turns."""

    def __init__(self, number: int, item: Item, began: float) -> None:
        self.number = number
        self._item = item
        self._began = began
        self._answers: list[Completion] = []

    @property
    def asks(self) -> bool:
        """Whether there is a further turn."""
        return len(self._answers) < len(self._item.prompt.turns)

    def request(self, contexts: Contexts, decoding: Decoding) -> Request:
        """The next turn."""
        context = contexts.after(self._item.prompt, [answer.tokens for answer in self._answers])
        return Request(context.ids, decoding.max_new_tokens, self._item.sampling, eos=decoding.eos)

    def heard(self, completion: Completion) -> None:
        """Take an answer."""
        if completion.error is not None:
            raise DraftwoodError(
                f"prompt {self._item.prompt.id!r} failed: {completion.error}"
            ) from completion.error
        self._answers.append(completion)

    def served(self, now: float) -> Served:
        """The answered prompt."""
        prompt, answers = self._item.prompt, self._answers
        return Served(
            id=prompt.id,
            task=prompt.task,
            tokens=tuple(answer.tokens for answer in answers),
            ttft=answers[0].ttft,
            seconds=now - self._began,
            steps=sum(answer.tally.steps for answer in answers),
            committed=sum(answer.tally.committed for answer in answers),
            prompt_tokens=answers[0].prompt_tokens,
        )


@dataclass(frozen=True)
class Pass:
    """The answered prompts of one pass of a method, its duration, and the load by others."""

    served: Sequence[Served]
    duration: float
    others: Others | None = None

    @property
    def speed(self) -> float:
        """Tokens per second of all users."""
        return sum(each.count for each in self.served) / self.duration


def timed_pass(
    engine: Engine,
    items: Sequence[Item],
    contexts: Contexts,
    decoding: Decoding,
    concurrency: int,
) -> Pass:
    """A pass in which an engine answers the items; see :func:`serve`."""
    with watched() as near:
        served, duration = serve(engine, items, contexts, decoding, concurrency)
    return Pass(served, duration, near.others)


def of_passes(
    passes: Sequence[Pass], concurrency: int, reference: Sequence[Served] | None = None
) -> ThroughputFigures:
    """The figures of the median pass, of two the slower one; see :func:`figures`."""
    speeds = tuple(each.speed for each in passes)
    shown = passes[speeds.index(median_low(speeds))]
    found = figures(shown.served, shown.duration, concurrency, reference)
    return replace(found, of_passes=speeds)


def in_turn(methods: Sequence[M], passes: int) -> Iterator[M]:
    """The methods of all passes; every second one is reversed, so that none is always first."""
    for number in range(passes):
        yield from methods[::-1] if number % 2 else methods


def figures(
    served: Sequence[Served],
    duration: float,
    concurrency: int,
    reference: Sequence[Served] | None = None,
) -> ThroughputFigures:
    """The figures of answered prompts.

    Args:
        served: at least one.
        duration: see :class:`ThroughputFigures`.
        concurrency: users.
        reference: plain decoding's answers to the same prompts, where tokens are comparable.
    """
    tasks = dict.fromkeys(each.task for each in served)
    later = [(each, each.count - 1) for each in served if each.count > 1]
    plain = {each.id: each.tokens for each in reference or ()}
    return ThroughputFigures(
        concurrency=concurrency,
        duration=duration,
        tokens_per_second=sum(each.count for each in served) / duration,
        ttft_ms=_spread([each.ttft for each in served]),
        tpot_ms=_spread([(each.seconds - each.ttft) / count for each, count in later]),
        latency_ms=_spread([each.seconds for each in served]),
        all=_category(served),
        by_category={task: _category([s for s in served if s.task == task]) for task in tasks},
        identical=None
        if reference is None
        else sum(plain.get(each.id) == each.tokens for each in served),
    )


def _category(served: Sequence[Served]) -> CategoryFigures:
    steps = sum(each.steps for each in served)
    return CategoryFigures(
        requests=len(served),
        output_tokens=sum(each.count for each in served),
        tokens_per_second_per_user=median(each.count / each.seconds for each in served),
        mean_acceptance_length=sum(each.committed for each in served) / steps if steps else None,
    )


def _spread(seconds: Sequence[float]) -> Spread:
    if not seconds:
        return Spread(None, None, None)
    p50, p90, p99 = (1e3 * float(p) for p in np.percentile(seconds, (50, 90, 99)))
    return Spread(p50, p90, p99)
