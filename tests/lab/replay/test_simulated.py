"""Simulated languages and drafters have the given entropy and acceptance rates."""

import math
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest

from draftwood.errors import DraftwoodError
from draftwood.lab.replay.decoding import PromptRun
from draftwood.lab.replay.simulated import run as running
from draftwood.lab.replay.simulated.language import Language, mix, permuted, uniform
from draftwood.lab.replay.simulated.rates import CopyRates, RankRates
from draftwood.lab.replay.simulated.run import Simulation, simulate
from draftwood.lab.replay.simulated.target import SimulatedTarget
from draftwood.lab.replay.substitute import replay_method
from draftwood.lab.theory.rated_tree import RatedTree, chain, expected_yield
from draftwood.methods import method
from tests.lab.replay.live_and_replayed import WatchedEngine

RANKS = (0.6, 0.15, 0.08)
COPIES = CopyRates(match=0.4, run=3.0)


def world(spread: float = 0.5, **changes: object) -> Simulation:
    given: dict[str, object] = {
        "language": Language(vocabulary=1000),
        "rates": {"": RankRates(RANKS, spread)},
        "copies": {"": COPIES},
    }
    return Simulation(**{**given, **changes})  # type: ignore[arg-type]


def simulated(spelt: str, at: Simulation, tokens: int, sequence: int = 0) -> PromptRun:
    one = replay_method(method(spelt), SimulatedTarget(at.language).info)
    return simulate(one, at, sequence=sequence, prompt=4, tokens=tokens)


def yields(spelt: str, at: Simulation, tokens: int = 600, sequences: int = 4) -> np.ndarray:
    """Committed tokens of every step but the last ones, which the answer's end cuts."""
    found: list[int] = []
    for sequence in range(sequences):
        run = simulated(spelt, at, tokens, sequence)
        found += [step.committed for step in run.steps][:-8]
    return np.array(found)


def agrees(found: np.ndarray, expected: float) -> bool:
    """Within four standard errors, which have to be small."""
    error = float(found.std() / math.sqrt(len(found)))
    assert error < 0.09
    return bool(abs(found.mean() - expected) < 4 * error)


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_a_chain_has_the_expected_yield(spread: float) -> None:
    assert agrees(yields("sd:budget=5", world(spread)), expected_yield(chain(5, 0.6)))


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_a_fixed_tree_has_the_expected_yield(spread: float) -> None:
    # The walk tries siblings in turn: a rank's rate given that those before it were wrong.
    given = [a / (1 - sum(RANKS[:i])) for i, a in enumerate(RANKS)]
    parents, rates, level = [-1], [1.0], [0]
    for _ in range(3):
        above, level = level, []
        for parent in above:
            level += range(len(parents), len(parents) + 3)
            parents += [parent] * 3
            rates += given
    tree = RatedTree(tuple(parents), tuple(rates))
    found = yields("fixed-tree:threshold=0:depth=3:budget=39", world(spread))
    assert agrees(found, expected_yield(tree))
    # Negative control: the same tree with other rates.
    assert not agrees(found, expected_yield(RatedTree(tree.parents, (1.0, *(0.3,) * 39))))


def test_copied_chains_have_the_expected_yield() -> None:
    # A step in 0.4 of all cases has a chain, whose tokens are right with 3 / (1 + 3) each.
    expected = 1 + 0.4 * (expected_yield(chain(20, 0.75)) - 1)
    assert agrees(yields("pld", world()), expected)


def test_sources_may_differ_and_err_independently() -> None:
    at = world(rates={"": RankRates((0.1,)), "draft": RankRates((0.9,))})
    assert agrees(yields("sd:budget=3", at), expected_yield(chain(3, 0.9)))


def test_confidence_is_calibrated_descending_and_varies() -> None:
    keys = [mix(7, i) for i in range(20000)]
    for spread in (0.0, 0.5, 1.0):
        rows = np.array([RankRates(RANKS, spread).at(uniform(key)) for key in keys])
        assert rows.mean(axis=0) == pytest.approx(RANKS, abs=0.01)
        assert (rows[:, :-1] >= rows[:, 1:] - 1e-12).all()
        assert (rows.sum(axis=1) <= 1 + 1e-9).all()
        assert (rows[:, 0].std() > 0.05 * spread) == (spread > 0)


def test_confident_candidates_are_accepted_more_often() -> None:
    """q is calibrated for each text, not only on average."""
    with patch.object(running, "Engine", WatchedEngine):
        WatchedEngine.steps = []
        for sequence in range(3):
            simulated("sd:budget=1", world(1.0), 900, sequence)
    steps = [step for step in WatchedEngine.steps if step.tree.drafted]
    found = [(math.exp(step.tree.logq[1]), bool(step.path)) for step in steps]
    sure = [right for q, right in found if q > 0.7]
    unsure = [right for q, right in found if q < 0.5]
    assert len(sure) > 200
    assert len(unsure) > 200
    assert np.mean(sure) > 0.75
    assert np.mean(unsure) < 0.45


def test_every_method_generates_the_tokens_of_plain_decoding() -> None:
    plain = simulated("ar", world(), 60, 1).tokens
    for spelt in ("pld", "tr", "goose", "talon", "dynatree", "opt-tree", "eagle3"):
        found = simulated(spelt, world(), 60, 1)
        assert found.tokens == plain
        assert found.tally.mean_acceptance_length > 1.5


def test_forwards_are_counted_for_drafters_with_a_model_only() -> None:
    found = simulated("sd:budget=5", world(), 40)
    assert found.steps[0].levels == {"draft": (1, 1, 1, 1, 1)}
    assert found.tally.draft_calls == sum(len(step.levels["draft"]) for step in found.steps)
    found = simulated("tr", world(), 40)
    assert found.tally.draft_calls == 0
    assert found.steps[0].levels == {}


def test_real_drafters_find_what_a_text_repeats() -> None:
    language = Language(vocabulary=20, entropy=0.3, order=2)
    at = world(language=language, real=frozenset({"context", "adjacency"}))
    found = simulated("goose", at, 300)
    assert found.tally.mean_acceptance_length > 2
    never = world(language=Language(vocabulary=1000), real=frozenset({"context", "adjacency"}))
    found = simulated("goose", never, 100)
    assert found.tally.mean_acceptance_length < 1.2


def test_a_model_cannot_be_kept_real() -> None:
    with pytest.raises(DraftwoodError, match="'draft' has a model: only drafters without one"):
        simulated("sd", world(real=frozenset({"draft"})), 4)


def test_more_ranks_than_wrong_tokens_are_refused() -> None:
    with pytest.raises(DraftwoodError, match="need a vocabulary of 4 tokens or more, got 3"):
        world(language=Language(vocabulary=3, entropy=1.0))


# --- the language ---------------------------------------------------------------------------------


@pytest.mark.parametrize("entropy", [0.1, 2.0, 7.0])
def test_a_row_has_the_given_entropy(entropy: float) -> None:
    p = Language(vocabulary=500, entropy=entropy).profile
    p = p[p > 0]
    assert p.sum() == pytest.approx(1)
    assert float(-(p * np.log2(p)).sum()) == pytest.approx(entropy, abs=1e-3)
    assert all(a >= b for a, b in pairwise(p.tolist()))


def test_next_tokens_follow_the_rows_probabilities() -> None:
    language = Language(vocabulary=50, entropy=2.0)
    state = language.start()
    ranks = []
    for _ in range(4000):
        token = language.next_token(state)
        ranks.append(language.row(state, 50)[0].index(token))
        state = language.after(state, token)
    shares = np.bincount(ranks, minlength=50) / len(ranks)
    assert shares[:3] == pytest.approx(language.profile[:3], abs=0.03)


def test_likely_tokens_depend_on_the_last_order_tokens() -> None:
    short, long = Language(vocabulary=100, order=2), Language(vocabulary=100)
    for language, same in ((short, True), (long, False)):
        one = other = language.start()
        for a, b in ((1, 9), (5, 5), (6, 6)):
            one, other = language.after(one, a), language.after(other, b)
        assert (language.row(one, 8) == language.row(other, 8)) == same


def test_permutations_are_complete_and_differ() -> None:
    one, other = permuted(1, 60, 0, 60), permuted(2, 60, 0, 60)
    assert sorted(one) == sorted(other) == list(range(60))
    assert one != other
    assert permuted(1, 60, 4, 3) == one[4:7]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: Language(vocabulary=1), "give at least 2"),
        (lambda: Language(vocabulary=8, entropy=4.0), "between 0 and 3.0"),
        (lambda: Language(order=-1), "give at least 0"),
        (lambda: RankRates((0.2, 0.3)), "fall from rank to rank"),
        (lambda: RankRates((0.8, 0.3)), "add up to at most 1"),
        (lambda: RankRates(()), "probabilities above 0"),
        (lambda: RankRates((0.5,), 2.0), "spread is 2.0"),
        (lambda: CopyRates(1.5, 3.0), "at most 1"),
        (lambda: CopyRates(0.5, -1.0), "run is -1.0; give at least 0"),
        (lambda: CopyRates(0.5, 1.0, copied=0), "copied is 0; give at least 1"),
    ],
)
def test_invalid_parameters_are_refused(made: object, message: str) -> None:
    assert callable(made)
    with pytest.raises(DraftwoodError, match=message):
        made()
