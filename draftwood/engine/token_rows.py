"""The target's output at every cached token of a request, for drafters of a later request.

A drafter may learn from the top-k or the hidden states of all positions of a prompt. Where a
prompt's first tokens are not computed again, these come from here.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.engine.features import rows_at
from draftwood.protocols import Needs, Outcome, TargetOutput
from draftwood.tree import ROOT

Row = TypeVar("Row", np.int64, np.float32)

_MOST_STEPS = 64
"""Most steps of a request whose output waits to be joined: that of other requests stays alive with
it."""


class TokenRows:
    """The output at the tokens of one request, as far as drafters need it of prompts.

    Args:
        needs: of the drafters.
    """

    def __init__(self, needs: Needs) -> None:
        self._prompt_rows = needs.prompt_rows
        self._any = needs.prompt_rows or bool(needs.taps)
        self._parts: list[TargetOutput] = []
        self._steps: list[_Step] = []  # later than the parts

    def begin(self, rows: TargetOutput) -> None:
        """The output of the prompt."""
        if self._any:
            self._parts.append(without_logits(rows))

    def add(self, outcome: Outcome) -> None:
        """The output of a step at the accepted nodes, after that of the prompt."""
        if self._any:
            self._steps.append(_Step.of(outcome))
            if len(self._steps) >= _MOST_STEPS:
                self._join_steps()

    def first(self, length: int) -> TargetOutput | None:
        """The output at the first tokens; None if drafters need none. It holds views."""
        if not self._any:
            return None
        self._join_steps()
        self._parts = [joined(self._parts, prompt_rows=self._prompt_rows)]
        return first_rows(self._parts[0], length, prompt_rows=self._prompt_rows)

    def copied(self, length: int) -> TargetOutput | None:
        """The same, without keeping the output at further tokens alive."""
        found = self.first(length)
        if found is None:
            return None
        features, whole = found.features, self._parts[0]
        if features is not None and whole.features is not None and length < len(whole.features):
            found = replace(found, features=features.clone())
        if self._prompt_rows and length < len(whole.argmax):
            found = replace(
                found,
                argmax=found.argmax.copy(),
                top_tokens=found.top_tokens.copy(),
                top_probs=found.top_probs.copy(),
            )
        return found

    def _join_steps(self) -> None:
        """Make one part of the steps, without other nodes' output."""
        steps, self._steps = self._steps, []
        if not steps:
            return
        found = self._parts[0]  # for the width of the vocabulary
        if found.features is not None:
            found = replace(found, features=_own_features(steps))
        if self._prompt_rows:
            found = replace(
                found,
                argmax=np.concatenate([step.own(step.argmax) for step in steps]),
                top_tokens=np.concatenate([step.own(step.top_tokens) for step in steps]),
                top_probs=np.concatenate([step.own(step.top_probs) for step in steps]),
            )
        self._parts.append(found)


class _Step(NamedTuple):
    """The output of a step, without what is as wide as the vocabulary; see :class:`Outcome`.

    Attributes:
        nodes: the root and the accepted ones.
        features: of all nodes, or of these.
        picked: whether they are of these.
    """

    nodes: list[int]
    argmax: NDArray[np.int64]
    top_tokens: NDArray[np.int64]
    top_probs: NDArray[np.float32]
    features: torch.Tensor | None
    picked: bool

    @classmethod
    def of(cls, outcome: Outcome) -> "_Step":
        """That of an outcome."""
        rows, picked = outcome.rows, outcome.features
        features = rows.features if picked is None else picked
        host = rows.argmax, rows.top_tokens, rows.top_probs
        return cls([ROOT, *outcome.path], *host, features, picked is not None)

    def own(self, rows: NDArray[Row]) -> NDArray[Row]:
        """Those of the root and the accepted nodes."""
        return rows if len(rows) == len(self.nodes) else rows[self.nodes]


def _own_features(steps: Sequence[_Step]) -> torch.Tensor:
    """Those at the roots and the accepted nodes of some steps, picked at once."""
    given = [step.features for step in steps if step.features is not None]
    nodes = [np.arange(len(s.nodes)) if s.picked else np.array(s.nodes) for s in steps]
    return rows_at(nodes, given)


def joined(parts: Sequence[TargetOutput], *, prompt_rows: bool) -> TargetOutput:
    """One output from those of a text's parts, as if it had been cached at once.

    Args:
        parts: in the order of the text, at least one.
        prompt_rows: whether the top-k of all positions are kept, or only the last one's.
    """
    last = parts[-1]
    if len(parts) == 1:
        return last
    found = last
    if last.features is not None:
        features = [part.features for part in parts if part.features is not None]
        found = replace(found, features=torch.cat(features))
    if prompt_rows:
        found = replace(
            found,
            argmax=np.concatenate([part.argmax for part in parts]),
            top_tokens=np.concatenate([part.top_tokens for part in parts]),
            top_probs=np.concatenate([part.top_probs for part in parts]),
        )
    return found


def first_rows(rows: TargetOutput, length: int, *, prompt_rows: bool) -> TargetOutput:
    """The output at the first tokens."""
    found = rows
    if rows.features is not None:
        found = replace(found, features=rows.features[:length])
    if prompt_rows:
        found = replace(
            found,
            argmax=rows.argmax[:length],
            top_tokens=rows.top_tokens[:length],
            top_probs=rows.top_probs[:length],
        )
    return found


def rows_bytes(rows: TargetOutput) -> int:
    """Bytes that the output takes."""
    features = rows.features
    device = 0 if features is None else features.numel() * features.itemsize
    return device + rows.argmax.nbytes + rows.top_tokens.nbytes + rows.top_probs.nbytes


def without_logits(rows: TargetOutput) -> TargetOutput:
    """The output without what is as wide as the vocabulary."""
    # Not a view, which would keep all logits of the step.
    return replace(rows, logits=rows.logits.new_empty((0, rows.logits.shape[-1])), drawn=None)
