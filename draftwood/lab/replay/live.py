"""A live target and live drafters that teach a recording what it lacks.

They are asked whatever a replay asks; what they say that the recording does not know is kept, and
the recording answers. So the run that teaches and every later one see the same rows, and come to
the same trees. Knows nothing of methods and files.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.replay.drafter import LevelLog, RecordedDrafter
from draftwood.lab.replay.target import ReplayTarget
from draftwood.protocols import (
    Candidates,
    Continuation,
    Drafter,
    Expand,
    Needs,
    Outcome,
    Prefill,
    Target,
    TargetInfo,
    TargetOutput,
)
from draftwood.tree import TokenTree

LEAST_WIDTH = 32
"""Children that a live drafter is asked for, so that a larger budget need not ask it again."""


class LiveTarget:
    """Implements :class:`draftwood.protocols.Target`.

    Args:
        target: the recorded model, attached.
        recorded: answers.
        width: tokens of every row that is kept.
    """

    def __init__(self, target: Target, recorded: ReplayTarget, width: int) -> None:
        self._target = target
        self._recorded = recorded
        self._width = width
        self._own: dict[int, int] = {}

    @property
    def info(self) -> TargetInfo:
        """The model's facts."""
        return self._target.info

    def open(self, capacity: int) -> int:
        """Reserve a slot in both."""
        slot = self._recorded.open(capacity)
        self._own[slot] = self._target.open(capacity)
        return slot

    def release(self, slot: int) -> None:
        """Give it back."""
        self._recorded.release(slot)
        self._target.release(self._own.pop(slot))

    def length(self, slot: int) -> int:
        """Number of tokens cached in the slot."""
        return self._recorded.length(slot)

    def embedding(self) -> torch.nn.Module:
        """The model's."""
        return self._target.embedding()

    def lm_head(self) -> torch.nn.Module | None:
        """The model's."""
        return self._target.lm_head()

    def prefill(
        self, slots: Sequence[int], prompts: Sequence[Sequence[int]], needs: Needs
    ) -> list[TargetOutput]:
        """Cache the contexts; their rows are recorded, their features are not."""
        found = self._recorded.prefill(slots, prompts, needs)
        own = self._target.prefill(self._slots(slots), prompts, Needs(taps=needs.taps))
        return _with_features(found, own)

    def forward(
        self, slots: Sequence[int], trees: Sequence[TokenTree], needs: Needs
    ) -> list[TargetOutput]:
        """Score the trees and keep their rows, if anyone reads rows."""
        width = self._width if needs.top_k else 0
        own = self._target.forward(self._slots(slots), trees, Needs(width, taps=needs.taps))
        if width:
            self._recorded.learn(slots, trees, own)
        return _with_features(self._recorded.forward(slots, trees, needs), own)

    def commit(self, slots: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Keep the paths in both."""
        self._target.commit(self._slots(slots), paths)
        self._recorded.commit(slots, paths)

    def _slots(self, slots: Sequence[int]) -> list[int]:
        return [self._own[slot] for slot in slots]


class LiveDrafter:
    """Implements :class:`draftwood.protocols.Drafter`, for a drafter with a model of its own.

    Args:
        name: the drafter's, for what it is told in error messages.
        drafter: the live one.
        recorded: answers.
        log: of the recorded one; must come to the forwards that the live one makes.
    """

    def __init__(
        self, name: str, drafter: Drafter, recorded: RecordedDrafter, log: LevelLog
    ) -> None:
        self._name = name
        self._drafter = drafter
        self._recorded = recorded
        self._log = log
        self._before = drafter.forwards - log.forwards

    @property
    def needs(self) -> Needs:
        """The live drafter's."""
        return self._drafter.needs

    @property
    def forwards(self) -> int:
        """The live drafter's."""
        return self._drafter.forwards

    def backlog(self, slot: int) -> int:
        """The live drafter's."""
        return self._drafter.backlog(slot)

    def begin(self, slot: int, prefill: Prefill) -> None:
        """A request starts in both."""
        self._drafter.begin(slot, prefill)
        self._recorded.begin(slot, prefill)

    def observe(self, slot: int, outcome: Outcome) -> None:
        """A step was committed."""
        self._drafter.observe(slot, outcome)
        self._recorded.observe(slot, outcome)

    def release(self, slot: int) -> None:
        """The request has ended."""
        self._drafter.release(slot)
        self._recorded.release(slot)

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        """Nothing.

        Raises:
            DraftwoodError: the drafter copies text too, of which recordings know nothing.
        """
        found = self._drafter.continuations(slots)
        if any(found):
            raise DraftwoodError(
                f"drafter {self._name} has a model and copies text: its copies are not recorded, "
                "run this method live"
            )
        return found

    def proposals(self, slot: int, q_rows: Sequence[int]) -> torch.Tensor:
        """See :meth:`draftwood.lab.replay.drafter.RecordedDrafter.proposals`."""
        return self._recorded.proposals(slot, q_rows)

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """Ask the live drafter for more than is wanted, keep it, and answer from what is kept.

        Raises:
            DraftwoodError: it makes forwards that a replay would not count.
        """
        wide = [replace(query, k=_width(query), exclude=()) for query in queries]
        found = self._drafter.expand(slots, wide)
        for slot, query, answer in zip(slots, wide, found, strict=True):
            self._recorded.learn(slot, query, answer)
        answers = self._recorded.expand(slots, queries)
        if self._drafter.forwards - self._log.forwards != self._before:
            raise DraftwoodError(
                f"drafter {self._name} made {self._drafter.forwards - self._before} forwards where "
                f"a replay counts {self._log.forwards}: run this method live"
            )
        return answers


def _width(query: Expand) -> int:
    return max(LEAST_WIDTH, query.k + max(map(len, query.exclude), default=0))


def _with_features(rows: Sequence[TargetOutput], own: Sequence[TargetOutput]) -> list[TargetOutput]:
    return [replace(a, features=b.features) for a, b in zip(rows, own, strict=True)]
