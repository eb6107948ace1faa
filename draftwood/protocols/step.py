"""The records of one step: its verdict, its outcome, its times and what was predicted of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftwood.protocols.constraint import Constraint
from draftwood.protocols.target import TargetOutput
from draftwood.tree import TokenTree

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Verdict:
    """A verifier's result: accepted nodes from the root's child down, and the bonus token."""

    path: tuple[int, ...]
    bonus: int


@dataclass(frozen=True, eq=False)
class Prefill:
    """A prefilled prompt, for drafters to learn from.

    Attributes:
        prompt: int64 ``[n]`` token ids.
        first: the first generated token, which is the first tree's root.
        rows: the target output (all positions only if some drafter needs them).
        namespace: whose text this is; text of others must not be drafted from.
        constraint: what the request's grammar allows, at the beginning of the text; it moves on
            with the committed tokens. None without a grammar.
    """

    prompt: NDArray[np.int64]
    first: int
    rows: TargetOutput
    namespace: str = ""
    constraint: Constraint | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """A finished step, for drafters and policies to learn from.

    Attributes:
        tree: the tree that was verified.
        path: accepted nodes, root excluded.
        committed: committed tokens: the path's, then the bonus (the next root).
        rows: the target output at all nodes, rejected ones included.
        features: those of the rows at the root and the path, ``[1 + len(path), F]``, if they were
            picked for several requests at once.
    """

    tree: TokenTree
    path: tuple[int, ...]
    committed: tuple[int, ...]
    rows: TargetOutput
    features: torch.Tensor | None = None


PACE = 0.125
"""Weight of the newest step in :attr:`RequestLoad.pace`."""


class RequestLoad(NamedTuple):
    """A request at the beginning of a step.

    Attributes:
        cached: tokens of its text, the root included.
        left: tokens that it may still generate.
        pace: committed tokens a step, moving average.
        temperature: of its sampling; 0: greedy.
        backlogs: tokens that a drafter's model must read before it drafts, by source.
        constrained: whether it has a grammar.
    """

    cached: int
    left: int
    pace: float
    temperature: float
    backlogs: Mapping[str, int] = MappingProxyType({})
    constrained: bool = False

    def has_read(self, source: str) -> bool:
        """Whether the drafter of a source has a model that has read some of the text.

        One that has read nothing lacks all but the root, which it reads with the tree, or one token
        less: a head does not read the first one.
        """
        return 0 <= self.backlogs.get(source, -1) < self.cached - 2


@dataclass(frozen=True)
class StepTimes:
    """Wall-clock seconds of one step of the whole batch, by phase."""

    draft: float = 0.0
    target: float = 0.0
    verify: float = 0.0
    commit: float = 0.0
    learn: float = 0.0

    @property
    def after_target(self) -> float:
        """Seconds from the end of the target's forward on."""
        return self.verify + self.commit + self.learn

    @property
    def total(self) -> float:
        """Seconds of all phases."""
        return self.draft + self.target + self.after_target


@dataclass(frozen=True, eq=False)
class Labelled:
    """Candidates of a step, drafted or not, that the committed tokens show to be right or wrong.

    Plain sequences: a tuner makes them right behind a forward, when small arrays are slow.

    Attributes:
        sources: the first source that proposed each.
        probabilities: predicted, that the target takes the candidate if it takes its parent.
        taken: whether the target took it.
    """

    sources: Sequence[str] = ()
    probabilities: Sequence[float] = ()
    taken: Sequence[bool] = ()


@dataclass(frozen=True, eq=False)
class Prediction:
    """A tuner's prediction of a request's step, beside the labels that the step gave.

    Attributes:
        step: number of the step among those of the tuner, from 1.
        tokens: expected to be committed, before any cut.
        candidates: labelled.
    """

    step: int
    tokens: float
    candidates: Labelled
