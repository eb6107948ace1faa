"""Requests that join: while others run, their prompts are cached in pieces.

A long prompt so holds the others up for one piece at a time. Knows no target.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from draftwood.engine.sequence import RunningRequest
from draftwood.engine.token_rows import joined, without_logits
from draftwood.protocols import TargetOutput

ALONE = 1 << 13
"""Prompt tokens to cache at once while no request runs: their activations take memory."""

TOGETHER = 1 << 10
"""Likewise of several prompts on a CPU, where a token of a larger forward costs no less. The first
request has its first token when its own prompt is cached."""

BETWEEN = 256
"""Prompt tokens to cache between two steps, where the cost of a forward is not known."""

WITHIN, A_REQUEST = 48, 2
"""Prompt tokens to cache within a step where that cost is not known, and for each request that runs
if these are more."""


class JoiningRequest:
    """A request whose prompt is being cached.

    Args:
        sequence: the request, with a slot.
        done: tokens that the slot holds already.
        rows: output of these.
        leader: a request with the same prompt, which this one follows
            (:mod:`draftwood.engine.forking`).

    Attributes:
        copied: tokens that were not computed for it.
    """

    def __init__(
        self,
        sequence: RunningRequest,
        done: int = 0,
        rows: TargetOutput | None = None,
        *,
        leader: "JoiningRequest | None" = None,
    ) -> None:
        self.sequence = sequence
        self.done = self.copied = done
        self.leader = leader
        self._parts = [] if rows is None else [rows]

    @property
    def left(self) -> int:
        """Tokens that are not cached yet."""
        return len(self.sequence.request.ids) - self.done

    def piece(self, tokens: int) -> Sequence[int]:
        """The next tokens of the prompt."""
        return self.sequence.request.ids[self.done : self.done + tokens]

    def add(self, tokens: int, rows: TargetOutput) -> None:
        """Count tokens that were cached, with their output."""
        self.done += tokens
        features = None if rows.features is None else _alone(rows.features)
        rows = replace(rows, logits=_alone(rows.logits[-1:]), features=features)
        if self._parts:
            # A long prompt has hundreds of parts, and only the last one's logits are read.
            self._parts[-1] = without_logits(self._parts[-1])
        self._parts.append(rows)

    def follow(self, leader: "JoiningRequest") -> None:
        """Count the whole prompt as cached, with the output of another request's."""
        self._parts = leader._parts
        self.done = self.copied = leader.done

    def output(self, *, prompt_rows: bool) -> TargetOutput:
        """The output of the whole prompt; ``prompt_rows``: with the top-k of all positions."""
        return joined(self._parts, prompt_rows=prompt_rows)


def _alone(rows: torch.Tensor) -> torch.Tensor:
    """The rows, as a copy if they would keep those of a whole forward alive."""
    return rows.clone() if rows.untyped_storage().nbytes() > rows.nbytes else rows


class PromptPiece(NamedTuple):
    """The next tokens of a prompt, which one forward caches.

    Attributes:
        request: whose prompt it is.
        tokens: their number.
    """

    request: JoiningRequest
    tokens: int

    @property
    def slot(self) -> int:
        """Where they are cached."""
        return self.request.sequence.slot

    @property
    def ids(self) -> Sequence[int]:
        """The tokens."""
        return self.request.piece(self.tokens)


def shared_out(left: Sequence[int], budget: int) -> list[int]:
    """How many tokens of each prompt are next.

    Half of them are of the shortest rests, so that no short prompt waits for a long one; the others
    of those that came first, so that none waits for ever.

    Args:
        left: tokens of each prompt that are not cached.
        budget: most tokens in all.
    """
    found = [0] * len(left)
    shortest = sorted(range(len(left)), key=left.__getitem__)
    for order, most in ((shortest, budget // 2), (range(len(left)), budget)):
        for i in order:
            found[i] += min(left[i] - found[i], most - sum(found))
    return found
