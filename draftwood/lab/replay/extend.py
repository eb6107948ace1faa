"""A target and drafters with their models, which add missing rows to a recording.

Each query goes to the model; rows that the recording lacks are added to it, and the answer is read
from the recording. So this run and every later replay see the same rows and grow the same trees.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.replay.drafter import ForwardLog, ReplayDrafter
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
"""Fewest children requested of a draft model, so that a larger budget need not ask it again."""


class RecordingTarget:
    """Implements :class:`draftwood.protocols.Target` and records its output.

    Args:
        target: the recorded model, attached.
        recorded: its recording.
        width: tokens stored of every row.
    """

    def __init__(self, target: Target, recorded: ReplayTarget, width: int) -> None:
        self._target = target
        self._recorded = recorded
        self._width = width
        self._model_slots: dict[int, int] = {}

    @property
    def info(self) -> TargetInfo:
        """The model's facts."""
        return self._target.info

    def open(self, capacity: int) -> int:
        """Reserve a slot in the live and in the replayed target."""
        slot = self._recorded.open(capacity)
        self._model_slots[slot] = self._target.open(capacity)
        return slot

    def release(self, slot: int) -> None:
        """Free a slot of the live and of the replayed target."""
        self._recorded.release(slot)
        self._target.release(self._model_slots.pop(slot))

    def length(self, slot: int) -> int:
        """Number of tokens cached in the slot."""
        return self._recorded.length(slot)

    def embedding(self) -> torch.nn.Module:
        """The model's input embedding."""
        return self._target.embedding()

    def lm_head(self) -> torch.nn.Module | None:
        """The model's output head."""
        return self._target.lm_head()

    def prefill(
        self, slots: Sequence[int], prompts: Sequence[Sequence[int]], needs: Needs
    ) -> list[TargetOutput]:
        """Prefill both targets; rows come from the recording, features from the model."""
        rows = self._recorded.prefill(slots, prompts, needs)
        output = self._target.prefill(self._slots(slots), prompts, Needs(taps=needs.taps))
        return _with_features(rows, output)

    def forward(
        self, slots: Sequence[int], trees: Sequence[TokenTree], needs: Needs
    ) -> list[TargetOutput]:
        """Score the trees; record their rows if a drafter reads rows."""
        width = self._width if needs.top_k else 0
        output = self._target.forward(self._slots(slots), trees, Needs(width, taps=needs.taps))
        if width:
            self._recorded.learn(slots, trees, output)
        return _with_features(self._recorded.forward(slots, trees, needs), output)

    def commit(self, slots: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Commit the paths in the live and in the replayed target."""
        self._target.commit(self._slots(slots), paths)
        self._recorded.commit(slots, paths)

    def _slots(self, slots: Sequence[int]) -> list[int]:
        return [self._model_slots[slot] for slot in slots]


class RecordingDrafter(Drafter):
    """A drafter with a model whose output is recorded.

    Args:
        name: the drafter's name, for error messages.
        drafter: the drafter with its model.
        recorded: its recording.
        log: forward count of ``recorded``, which must match the model's.
    """

    def __init__(
        self, name: str, drafter: Drafter, recorded: ReplayDrafter, log: ForwardLog
    ) -> None:
        self._name = name
        self._drafter = drafter
        self._recorded = recorded
        self._log = log
        self._before = drafter.forwards - log.forwards

    @property
    def needs(self) -> Needs:
        """Needs of the drafter with its model."""
        return self._drafter.needs

    @property
    def forwards(self) -> int:
        """Forwards of the model."""
        return self._drafter.forwards

    def backlog(self, slot: int) -> int:
        """Number of tokens that the model has not cached."""
        return self._drafter.backlog(slot)

    def begin(self, slot: int, prefill: Prefill) -> None:
        """Start a request in the live and in the replayed drafter."""
        self._drafter.begin(slot, prefill)
        self._recorded.begin(slot, prefill)

    def observe(self, slot: int, outcome: Outcome) -> None:
        """Pass a step's outcome to the live and to the replayed drafter."""
        self._drafter.observe(slot, outcome)
        self._recorded.observe(slot, outcome)

    def release(self, slot: int) -> None:
        """Forget a request in the live and in the replayed drafter."""
        self._drafter.release(slot)
        self._recorded.release(slot)

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        """No continuations: a drafter with a model copies no text.

        Raises:
            DraftwoodError: the drafter copies text as well, which recordings do not store.
        """
        found = self._drafter.continuations(slots)
        if any(found):
            raise DraftwoodError(
                f"drafter {self._name} has a model and copies text: its copies are not recorded, "
                "run this method live"
            )
        return found

    def proposals(self, slot: int, q_rows: Sequence[int]) -> torch.Tensor:
        """See :meth:`draftwood.lab.replay.drafter.ReplayDrafter.proposals`."""
        return self._recorded.proposals(slot, q_rows)

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """Ask the model for at least ``LEAST_WIDTH`` children, record them, and read the recording.

        Raises:
            DraftwoodError: the model makes forwards that a replay would not count.
        """
        wide = [replace(query, k=_width(query), exclude=()) for query in queries]
        answers = self._drafter.expand(slots, wide)
        for slot, query, answer in zip(slots, wide, answers, strict=True):
            self._recorded.learn(slot, query, answer)
        found = self._recorded.expand(slots, queries)
        if self._drafter.forwards - self._log.forwards != self._before:
            raise DraftwoodError(
                f"drafter {self._name} made {self._drafter.forwards - self._before} forwards where "
                f"a replay counts {self._log.forwards}: run this method live"
            )
        return found


def _width(query: Expand) -> int:
    return max(LEAST_WIDTH, query.k + max(map(len, query.exclude), default=0))


def _with_features(
    rows: Sequence[TargetOutput], output: Sequence[TargetOutput]
) -> list[TargetOutput]:
    return [replace(a, features=b.features) for a, b in zip(rows, output, strict=True)]
