"""Step costs, updated online: the target's forward and the host time around it.

Tree growth is not included: it is spent before the tree is sized. Batches of about one size have
costs of their own: mostly one sequence is measured beforehand, and neither the forward nor the time
around it is the same for many at once.

:mod:`draftwood.costs.refine` corrects the forward's curve. Host seconds are a line over drafted
nodes, fitted to recent steps; a step far slower than the moving average counts as a few times that.
Draft levels are scaled with the machine as a whole, and those of each drafter by the time that
drafting takes from the first of them on. Pieces of prompts correct the curve of prompts. Where they
are part of a step's forward, what they add to it is predicted from that curve: such steps correct a
factor of this, and not the forward's curve. Knows neither engine nor clock.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.decayed_ratio import DecayedRatio
from draftwood.costs.guard import Guard
from draftwood.costs.refine import Refined

_EVERY = 8
"""Steps after which the curve is made anew; each of the first steps does so."""

_HALF_LIFE = 64.0
_DECAY = 2.0 ** (-1.0 / _HALF_LIFE)
_WEIGHT = 16.0
"""Weight of the given costs, in steps."""

_SPREAD = 16.0
"""Standard deviation of the drafted nodes that the given costs stand for."""

_CUT = 4.0
"""Factor over the moving average beyond which a time is cut."""

_NEWEST = 0.1
"""Weight of the newest step in the moving averages of a search and of draft levels; the first of
the latter weigh more."""

_MOST_READ = 2
"""Tokens of a forward that caches prompts from which its curve learns, over the most it knows."""

_DOUBLINGS = 7
"""The table goes on to so many doublings of one token a sequence."""

_FORGOTTEN = 2.0 ** (-1.0 / 512.0)
"""What is left, after a step, of the logarithm of a drafter's factor that was not asked."""

_WITHIN_WEIGHT, _WITHIN_HALF_LIFE = 4.0, 32.0
"""Weight of the first factor of prompts within steps, 1, and half-life of the factor, in steps."""

_UNUSED = 0.25
"""Weight of that 1 when a step is to have no tokens of prompts: the other way is tried again."""

_WHOLE_PIECE = 32
"""Tokens from which on a piece within a step counts as one observation of what it adds."""

_LEAST_ADDED = 0.1
"""Share of a token's mean cost that a token of a prompt within a step is expected to add, if no
more."""

_SOON, _SELDOM = 4, 64
"""Steps with a search after which one without is due, in a batch of several sequences: at first,
and at last. In between they double."""


class LiveCosts:
    """Live step costs of a target and its draft models.

    Args:
        costs: as measured or expected.
    """

    def __init__(self, costs: StepCosts) -> None:
        self._given = costs
        self._followed: dict[int, _Followed] = {}
        self._prompt = None if costs.prompt is None else Refined(costs.prompt)

    def now(self, batch: int) -> StepCosts:
        """Costs as of now, for a batch of sequences."""
        return self._at(batch).now

    @property
    def prompt(self) -> Curve | None:
        """Curve of the forward that caches tokens of prompts, as of now; None: not known."""
        return None if self._prompt is None else self._prompt.curve

    def observe_prompt(self, tokens: int, seconds: float) -> None:
        """Learn from a forward that cached tokens of prompts; ignored if they are not timed at all.

        Args:
            tokens: of all prompts together. Far more than were ever timed are ignored: their
                attention to each other takes longer than the curve knows.
            seconds: of the forward.
        """
        if self._prompt is not None and tokens <= _MOST_READ * self._prompt.prior.sizes[-1]:
            self._prompt = self._prompt.observe(tokens, 0, 1, seconds)

    def unused_within(self, batch: int) -> None:
        """Count a step of a batch that was to have no tokens of prompts, for what they add."""
        self._at(batch).within.forget(_UNUSED)

    def within(self, batch: int, tokens: int, prompt_tokens: int) -> float:
        """Seconds that tokens of prompts add to the target's forward of a step.

        Args:
            batch: sequences.
            tokens: scored, roots included.
            prompt_tokens: cached as well.
        """
        if not prompt_tokens:
            return 0.0
        return self._at(batch).within.value * self._added(batch, tokens, prompt_tokens)

    def _added(self, batch: int, tokens: int, prompt_tokens: int) -> float:
        """The same as predicted: a forward that is larger by so many tokens.

        Few tokens of prompts were not timed, and count as many: what the target takes for as few
        is known.
        """
        target = self._at(batch).now.target
        curve = self.prompt or target
        whole = curve.seconds(tokens + prompt_tokens)
        alone = min(curve.seconds(tokens), target.seconds(tokens))
        # Where a curve is flat, more tokens would never be seen to cost anything.
        least = _LEAST_ADDED * whole * prompt_tokens / (tokens + prompt_tokens)
        return max(whole - alone, least)

    def plain_due(self, batch: int) -> bool:
        """Whether a batch has searched for so long that a plain step is to be timed.

        All sizes of a forward may be slower than they were measured, and the smallest one not. A
        tuner that always drafts would never see it. And searching takes time too, even where
        nothing that was found pays.
        """
        return self._at(batch).plain_due

    def search(self, batch: int) -> float:
        """Moving average of the seconds of a batch's candidate search; 0 before the first."""
        return self._at(batch).search

    def observe(
        self,
        tokens: int,
        context: int,
        batch: int,
        target: float,
        outside: float,
        prompt_tokens: int = 0,
    ) -> None:
        """Learn from a step.

        Args:
            tokens: scored by the target, roots included.
            context: cached tokens, summed over the batch.
            batch: sequences.
            target: seconds of the target's forward.
            outside: seconds outside of all forwards, after the trees were grown.
            prompt_tokens: that the target's forward has cached as well.
        """
        added = self._added(batch, tokens, prompt_tokens) if prompt_tokens else 0.0
        step = _Step(tokens, context, batch, target, outside, prompt_tokens, added)
        self._at(batch).observe(step)

    def drafts(self, batch: int) -> bool:
        """Whether drafting is ahead of plain decoding in such batches, or is to be tried again."""
        return self._at(batch).guard.drafts

    def compare(self, batch: int, searched: bool, tokens: int, seconds: float) -> None:
        """Learn from a whole step, see :mod:`draftwood.costs.guard`.

        Args:
            batch: sequences.
            searched: whether the step searched for drafts.
            tokens: that it committed.
            seconds: that it took, over those of a plain step at its load.
        """
        self._at(batch).compared(searched=searched)
        self._at(batch).guard.observe(searched, tokens / batch, seconds)

    def searched(
        self, batch: int, search: float, drafting: float, levels: Mapping[str, float]
    ) -> None:
        """Learn from the growth of a step's trees.

        Args:
            batch: sequences.
            search: seconds before the first draft level.
            drafting: seconds from then on until all trees were grown.
            levels: seconds that the levels of each drafter that was asked were expected to take of
                these; all 0 if that is not known.
        """
        self._at(batch).searched(search)
        self._at(batch).drafted(drafting, levels)

    def _at(self, batch: int) -> "_Followed":
        """Costs shared by all batches nearest to one power of two, on a logarithmic scale."""
        if batch not in self._followed:
            about = 1 << round(math.log2(batch))
            if about not in self._followed:
                # One sequence was measured beforehand.
                self._followed[about] = _Followed(
                    _spread(self._given, about), _SOON if about > 1 else _SELDOM, Guard(about)
                )
            self._followed[batch] = self._followed[about]
        return self._followed[batch]


def _spread(costs: StepCosts, batch: int) -> StepCosts:
    """The costs, with a table that goes on to the sizes of such a batch.

    Few sizes of a slow model can be timed beforehand. A size beyond the table could not be
    corrected by itself.
    """
    known = costs.target
    sizes = {batch * size for size in known.sizes}
    sizes |= {batch << doublings for doublings in range(_DOUBLINGS + 1)}
    beyond = tuple(sorted(size for size in sizes if size > known.sizes[-1]))
    base = known.base + tuple(map(known.seconds, beyond))
    return replace(costs, target=replace(known, sizes=known.sizes + beyond, base=base))


def _scaled(curve: Curve, factor: float) -> Curve:
    return replace(
        curve,
        base=tuple(factor * value for value in curve.base),
        per_context=factor * curve.per_context,
        per_pair=factor * curve.per_pair,
        per_sequence=factor * curve.per_sequence,
    )


class _Step(NamedTuple):
    """A step, see :meth:`LiveCosts.observe`.

    Attributes:
        tokens: scored by the target.
        context: cached tokens.
        batch: sequences.
        target: seconds of the forward.
        outside: seconds outside of forwards.
        read: tokens of prompts in the forward.
        predicted: seconds that they were to add to it.
    """

    tokens: int
    context: int
    batch: int
    target: float
    outside: float
    read: int
    predicted: float


class _Followed:
    """Costs of batches of about one size."""

    def __init__(self, costs: StepCosts, plain_after: int, guard: Guard) -> None:
        self.now, self.guard = costs, guard
        self._plain_after, self._searched_steps = plain_after, 0
        self.search = 0.0
        self._searches = 0
        self._levels = dict.fromkeys(costs.drafters, 1.0)
        self._drafted = dict.fromkeys(costs.drafters, 0.0)
        self._met: set[str] = set()
        self._given = costs
        self._target = Refined(costs.target)
        self.within = DecayedRatio(1.0, _WITHIN_WEIGHT, _WITHIN_HALF_LIFE)
        self._steps = 0
        self._waiting: list[_Step] = []
        # Sums over steps: 1, n, n^2, seconds, n * seconds.
        n, square = _SPREAD, 2 * _SPREAD**2
        line = (1.0, n, square, costs.fixed + costs.node * n, costs.fixed * n + costs.node * square)
        self._sums = [_WEIGHT * value for value in line]

    @property
    def plain_due(self) -> bool:
        """Whether a step without a search is due."""
        return self._searched_steps >= self._plain_after

    def compared(self, *, searched: bool) -> None:
        """Count a whole step."""
        if searched:
            self._searched_steps += 1
            return
        if self.plain_due:
            self._plain_after = min(2 * self._plain_after, _SELDOM)
        self._searched_steps = 0

    def observe(self, step: _Step) -> None:
        """Count a step."""
        # A step is not read before the curve is made anew, and waits until then: behind a forward
        # all code is slow at first, and of several steps at once only one pays for that.
        self._waiting.append(step)
        self._steps += 1
        if self._steps < _EVERY or self._steps % _EVERY == 0:
            for each in self._waiting:
                self._count(each)
            self._waiting.clear()
            self._renew()

    def searched(self, seconds: float) -> None:
        """Count a search."""
        if not self._searches:
            self.search = seconds
        elif self._searches == 1:
            # The very first one met code and tables that were not at hand yet.
            self.search = min(self.search, seconds)
        else:
            self.search += _NEWEST * (min(seconds, _CUT * self.search) - self.search)
        self._searches += 1

    def drafted(self, seconds: float, expected: Mapping[str, float]) -> None:
        """Count the draft levels of a step, which were expected to take so much of the time.

        The time is known of all drafters together, so that each one's factor moves by its share of
        what was expected. The first levels of a drafter met code and tables that were not at hand
        yet, and do not count. The factor of one that is not asked is forgotten: a slow moment would
        otherwise end its use for good.
        """
        for name in self._levels.keys() - expected.keys():
            self._levels[name] **= _FORGOTTEN
        total = sum(expected.values())
        if not total:
            return
        new = expected.keys() - self._met
        self._met |= new
        if new:
            return
        ratio = min(max(seconds / total, 1.0 / _CUT), _CUT)
        for name in self._levels:
            share = expected.get(name, 0.0) / total
            self._drafted[name] += share
            self._levels[name] *= ratio ** (share * max(_NEWEST, 1.0 / (1.0 + self._drafted[name])))
        # The next levels are compared with what is known now.
        self.now = replace(self.now, drafters=self._drafters())

    def _drafters(self) -> dict[str, Curve]:
        slower = self._target.factor
        return {
            name: _scaled(level, slower * self._levels[name])
            for name, level in self._given.drafters.items()
        }

    def _count(self, step: _Step) -> None:
        tokens, context, batch, target, outside, read, predicted = step
        if not read:
            self._target = self._target.observe(tokens, context, batch, target)
        elif predicted > 0.0:
            # A large piece says as much as a small one, and a few tokens less.
            added = target - self._target.curve.seconds(tokens, context, batch)
            weight = min(1.0, read / _WHOLE_PIECE)
            self.within.add(weight * min(max(added / predicted, 0.0), _CUT), weight)
        nodes = tokens - batch
        mean = self.now.fixed + self.now.node * nodes
        seconds = max(0.0, outside - self.now.sequence * (batch - 1))
        if mean > 0.0:
            seconds = min(seconds, _CUT * mean)
        new = (1.0, nodes, nodes * nodes, seconds, nodes * seconds)
        self._sums = [_DECAY * old + value for old, value in zip(self._sums, new, strict=True)]

    def _renew(self) -> None:
        weight, n, square, seconds, product = self._sums
        spread = square - n * n / weight
        slope = max(0.0, (product - n * seconds / weight) / spread) if spread > 0.0 else 0.0
        fixed = max(0.0, (seconds - slope * n) / weight)
        self.now = replace(
            self._given,
            target=self._target.curve,
            drafters=self._drafters(),
            fixed=fixed,
            node=slope,
        )
