"""Estimates against a slow literal re-computation, and what they converge to."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from draftwood.policies.auto import calibration
from draftwood.policies.auto.calibration import BANDS, Calibration, Counts, Prior, band
from draftwood.policies.auto.features import NOT_ASKED, NOT_LISTED
from tests.policies.auto.known_costs import CODES

Codes = tuple[int, ...]

FOREVER = 1e12
"""A half-life in which nothing is forgotten."""

NOTHING: Prior = {}

# Sources alone, in pairs and all at once; two of them against a third that offers other tokens.
SEEN: tuple[Codes, ...] = (
    (5, NOT_ASKED, NOT_ASKED),
    (NOT_ASKED, 9, NOT_ASKED),
    (NOT_ASKED, NOT_ASKED, 11),
    (8, 12, NOT_ASKED),
    (8, NOT_ASKED, 14),
    (NOT_ASKED, 7, 16),
    (9, 10, 18),
    (21, NOT_LISTED, NOT_LISTED),
    (NOT_LISTED, NOT_LISTED, 4),
)


def counts(half_life: float = FOREVER, prior: Prior = NOTHING) -> Counts:
    return Counts(prior, half_life)


def teach(of: Counts, seen: Sequence[tuple[Codes, bool]]) -> None:
    of.observe([codes for codes, _ in seen], [taken for _, taken in seen])


@dataclass
class Literal:
    """All that was ever seen, in a list, weighed anew for each estimate."""

    half_life: float
    prior: dict[Codes, tuple[float, float]]
    now: int = 0
    seen: list[tuple[int, Codes, bool]] = field(default_factory=list)

    def sums(self, source: int | None, code: int | Codes | None) -> tuple[float, float]:
        """Offered and taken, of one code of a source, of one bucket (no source), or of all."""

        def counts_here(codes: Codes) -> bool:
            return code is None or (codes if source is None else codes[source]) == code

        old = 2.0 ** (-self.now / self.half_life)
        offered = sum(o for codes, (o, _) in self.prior.items() if counts_here(codes)) * old
        taken = sum(t for codes, (_, t) in self.prior.items() if counts_here(codes)) * old
        for step, codes, hit in self.seen:
            if counts_here(codes):
                weight = 2.0 ** ((step - self.now) / self.half_life)
                offered, taken = offered + weight, taken + weight * hit
        return offered, taken

    def probability(self, codes: Codes) -> float:
        own = calibration._OWN
        # Before anything is known of all candidates together: what an empty table starts from.
        start, old = counts(self.half_life), 2.0 ** (-self.now / self.half_life)
        pseudo = (start._offered * old, start._taken * old)
        offered, taken = self.sums(None, None)
        common = (taken + pseudo[1]) / (offered + pseudo[0])
        odds = math.log(common / (1 - common))
        for source, code in enumerate(codes):
            if code != NOT_ASKED:
                offered, taken = self.sums(source, code)
                rate = (taken + own * common) / (offered + own)
                odds += math.log(rate / (1 - rate)) - math.log(common / (1 - common))
        guess = 1 / (1 + math.exp(-odds))
        offered, taken = self.sums(None, codes)
        return float((taken + own * guess) / (offered + own))


@examples(max_examples=25)
@given(seed=st.integers(0, 10**6), half_life=st.sampled_from([1.0, 7.0, 200.0]))
def test_estimates_are_those_of_a_literal_re_computation(seed: int, half_life: float) -> None:
    rng = random.Random(seed)
    some: list[Codes] = [tuple(rng.choices(range(4), k=3)) for _ in range(6)]
    # Little enough that what is given counts in full.
    prior = {c: (rng.uniform(0, 2), rng.random()) for c in rng.sample(some, 3)}
    prior = {codes: (offered, offered * rate) for codes, (offered, rate) in prior.items()}
    fast = counts(half_life, prior)
    slow = Literal(half_life, prior)
    # More than thirty half-lives of the shortest, after which the weights are scaled back.
    for _ in range(70):
        step = [(rng.choice(some), rng.random() < 0.4) for _ in range(rng.randint(0, 3))]
        teach(fast, step)
        slow.seen += [(slow.now, codes, taken) for codes, taken in step]
        fast.fade()
        slow.now += 1
        if slow.now % 23 == 0:
            for codes in some:
                assert fast.acceptance.probability(codes) == pytest.approx(
                    slow.probability(codes), rel=1e-9
                )


def test_a_table_is_frozen() -> None:
    of = counts(50.0, {(5, 0, 0): (6.0, 2.0)})
    frozen = of.acceptance
    before = {codes: frozen.probability(codes) for codes in SEEN[:4]}
    for _ in range(300):  # more new buckets than rows are spare
        teach(of, [((i % 38, i % 32, i % 92), True) for i in range(20)])
        teach(of, [(codes, True) for codes in SEEN])
        of.fade()
    assert all(frozen.probability(codes) == before[codes] for codes in before)
    fresh = counts(50.0, {(5, 0, 0): (6.0, 2.0)}).acceptance
    for codes in SEEN:  # estimated late, but from the counts of then
        assert frozen.probability(codes) == fresh.probability(codes)
        assert of.acceptance.probability(codes) > frozen.probability(codes)


def test_codes_and_what_was_taken_go_one_for_one() -> None:
    of = counts()
    with pytest.raises(ValueError, match="zip"):
        of.observe([(3, 0, 0), (4, 0, 0)], [True])


def spread(rates: dict[Codes, float], each: int, step: int) -> list[tuple[Codes, bool]]:
    """``each`` candidates of every bucket, of which its rate is taken as evenly as can be."""
    numbers = range(step * each, (step + 1) * each)
    return [
        (codes, math.floor((i + 1) * rate) > math.floor(i * rate))
        for codes, rate in rates.items()
        for i in numbers
    ]


def other_domain(factor: float) -> Prior:
    """Many candidates of these buckets, and of others that share some of their codes."""
    rng = random.Random(5)
    found = {}
    for codes in SEEN:
        found[codes] = 4000.0, 4000.0 * min(0.95, factor * RATES[codes])
        for source, n in enumerate(CODES):
            other = (*codes[:source], rng.randrange(n), *codes[source + 1 :])
            found.setdefault(other, (3000.0, 3000.0 * rng.random()))
    return found


# None is what its sources one by one would lead to expect.
RATES = dict(zip(SEEN, (0.6, 0.25, 0.45, 0.97, 0.3, 0.8, 0.9, 0.7, 0.1), strict=True))


@pytest.mark.parametrize("prior", [NOTHING, other_domain(2.5), other_domain(0.3)])
def test_after_200_steps_of_another_domain_estimates_are_its_rates(
    prior: Prior,
) -> None:
    learnt = counts(calibration.HALF_LIFE, prior)
    before = {codes: learnt.acceptance.probability(codes) for codes in SEEN}
    assert max(abs(before[codes] / RATES[codes] - 1.0) for codes in SEEN) > 0.2
    for step in range(200):
        teach(learnt, spread(RATES, 6, step))
        learnt.fade()
    for codes in SEEN:
        assert learnt.acceptance.probability(codes) == pytest.approx(RATES[codes], rel=0.1), codes


def test_a_prior_has_the_weight_of_few_observations() -> None:
    """However long ago and however often: a few dozen candidates outweigh what a file says."""
    much: Prior = {(5, 0, 0): (1e4, 9e3), (0, 6, 0): (1e4, 1e3)}
    more = counts(prior={codes: (1000 * n, 1000 * hits) for codes, (n, hits) in much.items()})
    less = counts(prior=much)
    for codes in SEEN:
        assert more.acceptance.probability(codes) == pytest.approx(
            less.acceptance.probability(codes)
        )
    assert more.acceptance.probability((5, 0, 0)) == pytest.approx(0.9, rel=0.1), (
        "but it is believed at first"
    )
    assert more.acceptance.probability((0, 6, 0)) < 0.2
    teach(more, [((5, 0, 0), False)] * 150)
    assert more.acceptance.probability((5, 0, 0)) < 0.2


@pytest.mark.parametrize("taken", [False, True])
def test_every_estimate_is_a_probability(taken: bool) -> None:
    """For a hundred half-lives nothing but one bucket is seen, always with the same label."""
    rng = random.Random(1)
    prior: Prior = {
        tuple(map(rng.randrange, CODES)): (100.0, 100 * rng.random()) for _ in range(700)
    }
    learnt = counts(1.0, prior)
    for _ in range(100):
        teach(learnt, [(SEEN[0], taken)])
        learnt.fade()
        estimates = [learnt.acceptance.probability(codes) for codes in (*SEEN, *prior)]
        assert 0.0 < min(estimates) <= max(estimates) <= 1.0
    assert (estimates[0] > 0.5) == taken


# --- temperatures ---------------------------------------------------------------------------------


def test_bands_follow_the_temperature() -> None:
    found = [band(t) for t in (0.0, 1e-6, 0.3, 0.8, 1.0, 2.0)]
    assert list(dict.fromkeys(found)) == list(BANDS)
    assert Counter(found)["greedy"] == 1
    ranks = [BANDS.index(name) for name in found]
    assert ranks == sorted(ranks)


def test_temperatures_of_a_band_share_a_table_and_no_others() -> None:
    known = Calibration({"high": {(5, 0, 0): (1000.0, 900.0)}})
    greedy, low, high = known.at(0.0), known.at(0.3), known.at(1.0)
    assert known.at(1e-3) is low
    assert known.at(1.5) is high
    assert len({id(greedy), id(low), id(high)}) == 3
    unknown = greedy.acceptance.probability((0, 0, 0))
    assert (
        greedy.acceptance.probability((5, 0, 0)) == low.acceptance.probability((5, 0, 0)) == unknown
    )
    assert high.acceptance.probability((5, 0, 0)) > 0.8
    teach(low, [((5, 0, 0), False)] * 100)
    assert greedy.acceptance.probability((5, 0, 0)) == unknown
    assert high.acceptance.probability((5, 0, 0)) > 0.8
    assert low.acceptance.probability((5, 0, 0)) < 0.1


def test_steps_without_candidates_change_no_estimate_but_its_weight() -> None:
    learnt = Calibration(half_life=1.0).at(0.0)
    teach(learnt, [((5, 0, 0), True)] * 30 + [((5, 0, 0), False)] * 10)
    common = learnt.acceptance.common
    for _ in range(3000):  # all counts become too small for a float
        learnt.fade()
    assert learnt.acceptance.common == pytest.approx(common)
    teach(learnt, [((5, 0, 0), False)] * 50)
    assert learnt.acceptance.probability((5, 0, 0)) < 0.1


def test_a_calibration_decays_by_its_half_life() -> None:
    found = []
    for half_life in (1.0, FOREVER):
        learnt = Calibration(half_life=half_life).at(0.0)
        teach(learnt, [((5, 0, 0), True)] * 50)
        for _ in range(10):
            learnt.fade()
        teach(learnt, [((5, 0, 0), False)] * 50)
        found.append(learnt.acceptance.probability((5, 0, 0)))
    assert found[0] < 0.1
    assert found[1] == pytest.approx(0.5, abs=0.1)
