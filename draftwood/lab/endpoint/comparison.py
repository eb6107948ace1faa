"""Everything that the checks of one run share: two sides, prompts, settings and greedy answers."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from draftwood.lab.endpoint.answer import Answer, Choice
from draftwood.lab.endpoint.client import Failed
from draftwood.lab.endpoint.divergence import Divergence, Score, divergence, plain_score
from draftwood.lab.endpoint.prompts import Prompt
from draftwood.lab.endpoint.result import Asked
from draftwood.lab.endpoint.server import Server
from draftwood.lab.endpoint.tolerance import Tolerance

if TYPE_CHECKING:
    from draftwood.lab.endpoint.local import LocalModel

A = TypeVar("A")
B = TypeVar("B")

Side: TypeAlias = "Server | LocalModel"

GREEDY_TOKENS = 64
"""Most tokens of a greedy answer."""


@dataclass(frozen=True)
class Settings:
    """Settings of a run.

    Attributes:
        tolerance: largest gap that rounding explains.
        samples: continuations to sample of each side.
        seed: of the first sample; the others have the following ones.
        same_seed: whether a seed has to give the same text with and without speculation.
        concurrency: most requests at once.
        sampled_prompt: whose continuations are sampled.
        top_k: likeliest tokens that they are sampled from, if both sides can; 0: all.
    """

    tolerance: Tolerance
    samples: int
    seed: int
    same_seed: bool
    concurrency: int
    sampled_prompt: Prompt
    top_k: int = 4


@dataclass
class Comparison:
    """A server, its reference, and the prompts that both are asked.

    Attributes:
        endpoint: the server that is checked.
        reference: the same or another server, or a local model; decodes plainly.
        prompts: for greedy answers.
        settings: of the run.
    """

    endpoint: Server
    reference: Side
    prompts: Sequence[Prompt]
    settings: Settings
    _greedy: dict[tuple[int, Prompt, bool], Choice] = field(default_factory=dict)

    def greedy(self, side: Side, prompt: Prompt, *, logprobs: bool = False) -> Choice:
        """The greedy answer of a side, which is asked once.

        Raises:
            Refused: the side does not take the prompt.
            Failed: it breaks down.
        """
        key = (id(side), prompt, logprobs)
        if key not in self._greedy:
            tops = self.tops(side) if logprobs else None
            self._greedy[key] = side.ask(prompt, GREEDY_TOKENS, tops=tops).first
        return self._greedy[key]

    def expected(self, prompt: Prompt) -> Choice:
        """The reference's greedy answer, with log probabilities if it reports them."""
        return self.greedy(self.reference, prompt, logprobs=self.tops(self.reference) is not None)

    @property
    def answered(self) -> list[Prompt]:
        """The prompts that the endpoint has answered greedily.

        Raises:
            Failed: there are none.
        """
        found = [each for each in self.prompts if (id(self.endpoint), each, False) in self._greedy]
        if not found:
            raise Failed("no prompt was answered")
        return found

    @property
    def longest(self) -> Prompt:
        """The answered prompt with the longest answer, for checks that take one prompt.

        Raises:
            Failed: see :attr:`answered`.
        """
        return max(self.answered, key=lambda each: len(self.greedy(self.endpoint, each).text))

    def ask_reference(self, prompt: Prompt, tokens: int, **fields: Any) -> Answer:
        """The reference's answer, with log probabilities if it reports them."""
        return self.reference.ask(prompt, tokens, tops=self.tops(self.reference), **fields)

    def judge(
        self,
        expected: Choice,
        found: Choice,
        *,
        cut: bool = False,
        score: Score = plain_score,
    ) -> Divergence | None:
        """The first difference between an answer of the reference and another."""
        tolerance = self.settings.tolerance.value
        return divergence(expected, found, tolerance, cut=cut, score=score)

    def tops(self, side: Side) -> int | None:
        """Likeliest tokens that a side reports log probabilities of; None: it reports none."""
        return side.abilities.tops if isinstance(side, Server) else 1

    def requests(self, prompt: Prompt, tokens: int, **fields: Any) -> tuple[Asked, ...]:
        """A request to both sides, for a result."""
        found = [asked(self.endpoint, prompt, tokens, **fields)]
        if isinstance(self.reference, Server):
            more = {**fields, "tops": self.tops(self.reference)}
            found.append(asked(self.reference, prompt, tokens, **more))
        return tuple(found)

    def each(self, function: Callable[[A], B], items: Iterable[A]) -> list[B]:
        """The results of a function for all items, a few of them at a time."""
        with ThreadPoolExecutor(self.settings.concurrency) as pool:
            futures = [pool.submit(function, item) for item in items]
            try:
                return [future.result() for future in futures]
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise


def asked(server: Server, prompt: Prompt, tokens: int, **fields: Any) -> Asked:
    """A request to a server, as it is sent."""
    path, body = server.request(prompt, tokens, **fields)
    return Asked(f"{server.client.url}{path}", body, server.client.has_key)
