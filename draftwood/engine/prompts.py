"""Caches the prompts of requests that join: at once, between the steps of others or within these.

While no request runs, prompts are cached at once; on a CPU about a thousand tokens, of several
prompts. Otherwise each step caches a piece of them. On a CPU the piece is part of the step's
forward, unless that is known to be dear: weights are read once for both.
"""

from collections.abc import Sequence
from time import perf_counter

from draftwood.engine.forking import fork, leaders
from draftwood.engine.joining import (
    A_REQUEST,
    ALONE,
    BETWEEN,
    TOGETHER,
    WITHIN,
    JoiningRequest,
    PromptPiece,
    shared_out,
)
from draftwood.protocols import Needs, ResumableTarget, Target, Tuner, shared
from draftwood.runner.recurrent.states import TAIL


class Prompts:
    """The prompts of one engine's requests.

    Args:
        target: caches them.
        needs: of the drafters.
        tuner: knows what a piece costs; None: it is not known.

    Attributes:
        resumable: the target, if it can begin with tokens that were cached before.
        end_apart: whether the last tokens of a prompt are cached by themselves, so that the states
            before them can be kept.
    """

    def __init__(self, target: Target, needs: Needs, tuner: Tuner | None) -> None:
        self._target = target
        self.resumable = target if isinstance(target, ResumableTarget) else None
        self._needs = needs
        self._tuner = tuner
        self._shared = shared(target)
        # Beside another device the work is only queued, and what it takes is not known.
        self._taught = tuner if target.info.device.type == "cpu" else None
        self.end_apart = False

    def next(self, joining: Sequence[JoiningRequest], *, alone: bool) -> list[PromptPiece]:
        """The pieces of the prompts of requests that join to cache next, outside of a step.

        ``alone``: no request runs. A target that is not resumable caches all prompts at once.
        """
        joining = leaders(joining)
        left = [request.left for request in joining]
        counts = left
        if self.resumable is not None:
            counts = shared_out(left, self._most(len(left), alone=alone))
        if self.end_apart:
            counts = [
                min(n, own - TAIL) if own > TAIL else n for n, own in zip(counts, left, strict=True)
            ]
        return [PromptPiece(r, n) for r, n in zip(joining, counts, strict=True) if n]

    def _most(self, prompts: int, *, alone: bool) -> int:
        """Most tokens of so many prompts to cache at once."""
        if not alone:
            return (self._tuner and self._tuner.prompt_piece()) or BETWEEN
        on_cpu = self._target.info.device.type == "cpu"
        return TOGETHER if on_cpu and prompts > 1 else ALONE

    def cache(self, pieces: Sequence[PromptPiece]) -> None:
        """Cache pieces of prompts."""
        slots, tokens = [each.slot for each in pieces], [each.ids for each in pieces]
        begun = perf_counter()
        whole = all(each.tokens == len(each.request.sequence.request.ids) for each in pieces)
        if self.resumable is None or whole:
            rows = self._target.prefill(slots, tokens, self._needs)
        else:
            prompts = [len(each.request.sequence.request.ids) for each in pieces]
            rows = self.resumable.prefill_piece(slots, tokens, self._needs, prompts)
        self._note(sum(map(len, tokens)), perf_counter() - begun)
        for each, found in zip(pieces, rows, strict=True):
            each.request.add(each.tokens, found)

    def within(self, joining: Sequence[JoiningRequest], running: int) -> list[PromptPiece]:
        """The pieces to cache in the next step's forward; none: they are cached before it.

        ``running``: requests whose step it is.
        """
        resumable = self.resumable
        if resumable is None:
            return []
        known = None if self._tuner is None else self._tuner.prompt_piece_within()
        tokens = max(WITHIN, A_REQUEST * running) if known is None else known
        joining = leaders(joining)
        left = [request.left for request in joining]
        counts = shared_out(left, min(tokens, resumable.most_within))
        found = [PromptPiece(r, n) for r, n in zip(joining, counts, strict=True) if n]
        readable = all(resumable.readable(each.slot, each.tokens) for each in found)
        return found if readable else []

    def cached(self, joining: Sequence[JoiningRequest]) -> list[JoiningRequest]:
        """The requests whose whole prompts are cached, those that follow such a one included."""
        if self.resumable is not None:
            fork(joining, self.resumable)
        return [request for request in joining if not request.left]

    def _note(self, tokens: int, seconds: float) -> None:
        """Have the tuner learn what it took to cache tokens of prompts."""
        if self._taught is None:
            return
        if self._shared is not None:
            [seconds] = self._shared.of_first((seconds,))
        self._taught.observe_prompt(tokens, seconds)
