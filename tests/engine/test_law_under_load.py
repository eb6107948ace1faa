"""Methods that sample their drafts keep the distribution, whoever shares the batch.

Their tokens depend on the batch: the size of a tree follows its load. So a prompt is continued very
often beside other requests, and continuations are counted against the target's distribution.

Power: 5,000 draws whose law is off by a total variation of 0.08 or more, in whatever direction,
have a p-value below 1e-6 with a probability above 0.99. A right method has one in a million times.
"""

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from statistics import fmean

import pytest
from scipy import stats

from draftwood.engine.engine import Engine
from draftwood.engine.request import Finished, Request, Stepped
from draftwood.engine.thread import EngineThread, Failed, Report
from draftwood.lab.lossless.chi_square import ChiSquare, chi_square
from draftwood.lab.lossless.model import ModelCheck
from draftwood.methods import method
from draftwood.methods.recipe import Method
from draftwood.protocols import Verdict, Verification
from draftwood.sampling.sampler import SamplingParams
from tests.factories.literal_verifiers import Rejection
from tests.factories.similar_draft import SimilarDraft, target

DRAWS, LENGTH, ROOM, AT_ONCE, OTHERS = 5000, 3, 4, 6, 6
CONTROL = 1500
"""Draws of the control, whose error is large."""
LEAST_P, DISTANCE, POWER = 1e-6, 0.08, 0.99
PROMPT = tuple(int(token) for token in "0102030411213142233243440123432104")
SAMPLING = SamplingParams(temperature=1.3, top_k=3)
DRAWN = "auto:drafter=model:layout=drawn:budget=4:max_depth=2"


def draw(seed: int) -> Request:
    """A continuation that ends after three tokens, with room for deeper trees."""
    end = len(PROMPT) + LENGTH
    return Request(
        PROMPT,
        LENGTH + ROOM,
        replace(SAMPLING, seed=seed),
        eos=(),
        should_stop=lambda ids: ids.shape[1] >= end,
    )


def other(random: Random) -> Request:
    """A request of somebody else."""
    prompt = random.choices(range(5), k=random.randint(1, 40))
    heat = random.choice((0.0, 0.7, 1.3))
    return Request(
        prompt,
        random.randint(5, 60),
        SamplingParams(heat, seed=random.randrange(2**64)),
        eos=(),
        speculate=random.random() < 0.8,
    )


@dataclass
class Load:
    """Keeps other requests running in an engine; every tenth is cancelled as it begins."""

    thread: EngineThread
    random: Random = field(default_factory=lambda: Random(0))
    going: bool = True
    ended: int = 0

    def add(self) -> None:
        """Begin another one."""
        [ticket] = self.thread.submit([other(self.random)], self._told)
        if self.random.random() < 0.1:
            self.thread.cancel(ticket)

    def _told(self, index: int, report: Report) -> None:
        if isinstance(report, Finished | Failed):
            self.ended += 1
            if self.going:
                self.add()


@dataclass
class Drawn:
    """Continuations, and the requests that shared each of their steps."""

    tokens: list[tuple[int, ...]] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    accepted: int = 0


def engine_of(chosen: Method, max_batch: int) -> Engine:
    model = target()
    return Engine(model, chosen, max_batch=max_batch, host=SimilarDraft(model.info, divisor=2))


def under_load(chosen: Method, draws: int) -> Drawn:
    """Draws while other requests run in the same engine, on its own thread."""
    thread = EngineThread(engine_of(chosen, AT_ONCE + OTHERS))
    load, found, places = Load(thread), Drawn(), threading.Semaphore(AT_ONCE)

    def told(index: int, report: Report) -> None:
        if isinstance(report, Stepped):
            found.batches.append(report.stats.batch)
        if isinstance(report, Finished):
            found.tokens.append(report.completion.checked().tokens)
            found.accepted += report.completion.tally.accepted
        if isinstance(report, Finished | Failed):
            places.release()

    try:
        for _ in range(OTHERS):
            load.add()
        for seed in range(draws):
            assert places.acquire(timeout=60)
            thread.submit([draw(seed)], told)
        for _ in range(AT_ONCE):
            assert places.acquire(timeout=60)
    finally:
        load.going = False
        thread.close()
    assert load.ended > draws / 100
    assert len(found.tokens) == draws
    return found


def against_the_law(tokens: Sequence[tuple[int, ...]]) -> ChiSquare:
    law = ModelCheck(target(), None, PROMPT, SAMPLING).law
    assert sum(law.values()) == pytest.approx(1)
    return chi_square(Counter(tokens), law)


@pytest.mark.slow
def test_sampled_drafts_keep_the_law_beside_other_requests() -> None:
    found = under_load(method(DRAWN), DRAWS)
    test = against_the_law(found.tokens)
    assert test.degrees > 15
    assert test.p_value > LEAST_P
    # By Cauchy and Schwarz the sum of (difference^2 / p) is at least (2 * distance)^2.
    limit, least = stats.chi2.isf(LEAST_P, test.degrees), 4 * DRAWS * DISTANCE**2
    assert stats.ncx2.sf(limit, test.degrees, least) > POWER
    assert fmean(found.batches) > AT_ONCE, "others shared the steps"
    assert found.accepted > DRAWS / 10


@dataclass(frozen=True)
class Lenient(Rejection):
    """Wrong in company: accepts a drafted token too often, unless its request runs alone."""

    def verify(self, cases: Sequence[Verification]) -> list[Verdict]:
        return (Rejection(1.5) if len(cases) > 1 else Rejection()).verify(cases)


@pytest.mark.slow
def test_a_verifier_that_is_wrong_in_company_only_is_found_out() -> None:
    wrong = replace(method(DRAWN), verifier=Lenient())
    assert against_the_law(under_load(wrong, CONTROL).tokens).p_value < LEAST_P
    alone = engine_of(wrong, 1).generate([draw(seed) for seed in range(CONTROL)])
    assert against_the_law([each.tokens for each in alone]).p_value > LEAST_P


def test_tokens_of_sampled_drafts_depend_on_the_batch() -> None:
    """Why counts are needed: to compare tokens would not do."""
    requests = [draw(seed) for seed in range(60)]
    alone = engine_of(method(DRAWN), 1).generate(requests)
    together = engine_of(method(DRAWN), 16).generate(requests)
    assert [each.tokens for each in alone] != [each.tokens for each in together]
