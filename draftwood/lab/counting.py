"""Counting for a calibration: how often a model accepts candidates, by their features.

``auto`` decodes with a tuner for which nothing costs anything, so that every candidate is drafted,
however unlikely: the policy's choice does not bias the counts.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.methods.recipe import Method
from draftwood.policies.auto.calibration import Calibration, Prior
from draftwood.policies.auto.features import SOURCES, Codes, Source
from draftwood.policies.auto.forecast import Forecast
from draftwood.policies.auto.policy import Auto
from draftwood.protocols import (
    FREE,
    Bid,
    Built,
    Host,
    Prediction,
    Price,
    RequestLoad,
    StepReport,
    Tuner,
)

_FLOOR = 0.002
"""Path probability below which no candidates are searched."""

_MOST = 4.0
"""Candidates that one answer counts for in a bucket, at most."""


class AnswerCounts:
    """The counts of answers.

    Args:
        sources: in the order of a candidate's codes.

    Attributes:
        all: counts of all answers; the candidates of the next one are predicted by them.
        answer: counts of the answer that is decoded.
    """

    def __init__(self, sources: tuple[Source, ...] = SOURCES) -> None:
        self.all = Calibration(half_life=math.inf, sources=sources)
        self.answer = Calibration(half_life=math.inf)
        self._ended: list[Mapping[str, Prior]] = []

    def end_answer(self) -> None:
        """Count from here on for another answer."""
        self._ended.append(self.answer.totals())
        self.answer = Calibration(half_life=math.inf)

    def calibration(self) -> Calibration:
        """The calibration to begin with, in which no ended answer outvotes the others."""
        counts = capped_sum(self._ended, _MOST)
        return Calibration(counts, sources=self.all.sources, learnt=self.all.learnt())


def capped_sum(answers: Iterable[Mapping[str, Prior]], most: float) -> dict[str, Prior]:
    """The sum of counts by band and bucket, each answer scaled to ``most`` offered at most."""
    found: dict[str, dict[Codes, tuple[float, float]]] = defaultdict(dict)
    for answer in answers:
        for band, counts in answer.items():
            for codes, (offered, taken) in counts.items():
                scale = most / max(offered, most)
                before = found[band].get(codes, (0.0, 0.0))
                found[band][codes] = before[0] + scale * offered, before[1] + scale * taken
    return dict(found)


@dataclass(frozen=True)
class _CountingAuto(Auto):
    """``auto`` that drafts every candidate; all engines count for one calibration."""

    counts: AnswerCounts = field(default_factory=AnswerCounts)

    def tuner(self, host: Host, drafters: Mapping[str, Built]) -> Tuner:  # noqa: ARG002
        return _CountingTuner(self.counts)


class _CountingTuner(Tuner):
    """Counts the accepted candidates; neither nodes nor draft forwards cost anything."""

    def __init__(self, counts: AnswerCounts) -> None:
        self._counts = counts
        self._loads: Sequence[RequestLoad] = ()

    def begin(self, loads: Sequence[RequestLoad]) -> list[Forecast]:
        self._loads, known = loads, self._counts.all
        return [
            Forecast(
                known.at(load.temperature).acceptance,
                floor=_FLOOR,
                price=0.0,
                sources=known.sources,
            )
            for load in loads
        ]

    def price(self, bids: Sequence[Bid]) -> Price:  # noqa: ARG002
        return FREE

    def observe(self, report: StepReport) -> list[Prediction | None]:
        for bid, outcome, load in zip(report.bids, report.outcomes, self._loads, strict=True):
            if bid is not None:
                codes, labelled = bid.report.labelled(outcome.committed)
                for each in (self._counts.all, self._counts.answer):
                    each.at(load.temperature).observe(codes, labelled.taken)
        return [None] * len(report.bids)


def counting(methods: Sequence[Method]) -> tuple[AnswerCounts, list[Method]]:
    """Counts that begin empty, and the methods with engines that count there.

    Raises:
        DraftwoodError: a method is not ``auto``, or the methods differ in their further sources.
    """
    policies: list[Auto] = []
    sources = set[tuple[Source, ...]]()
    for each in methods:
        if not isinstance(each.policy, Auto):
            raise DraftwoodError(f"method {each.name!r} uses no calibration: count with auto")
        policies.append(each.policy)
        sources.add(each.policy.described(each.drafters))
    if len(sources) > 1:
        raise DraftwoodError(
            "the methods differ in their further sources: count with one at a time"
        )
    counts = AnswerCounts(sources.pop())
    found = [
        replace(each, policy=_CountingAuto(**_settings(policy), counts=counts))
        for each, policy in zip(methods, policies, strict=True)
    ]
    return counts, found


def _settings(policy: Auto) -> dict[str, Any]:
    return {each.name: getattr(policy, each.name) for each in fields(policy)}
