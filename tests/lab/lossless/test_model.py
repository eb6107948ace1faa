"""Counts and greedy tokens against a target, with methods that are right and that are not."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.model import GREEDY_TOKENS, LENGTH, ModelCheck, check_countable
from draftwood.methods import method
from draftwood.methods.recipe import Method
from draftwood.protocols import Verdict, Verification
from draftwood.sampling.sampler import SamplingParams
from tests.factories.literal_verifiers import Eager, Rejection
from tests.factories.markov_target import MarkovTarget

# Every pair of the five tokens occurs, so that copying drafters find something to offer.
PROMPT = [int(token) for token in "0102030411213142233243440123432104"]
SAMPLING = SamplingParams(temperature=1.3, top_k=3, seed=5)


def target() -> MarkovTarget:
    return MarkovTarget(5, seed=3, sharpness=1.0)


@pytest.fixture
def model_check() -> ModelCheck:
    return ModelCheck(target(), None, PROMPT, SAMPLING)


@dataclass(frozen=True)
class Lazy(Rejection):
    """Wrong: always commits token 0."""

    def _one(self, case: Verification) -> Verdict:
        return Verdict((), 0)


def wrong(verifier: Rejection) -> Method:
    return replace(method("tr:budget=8"), verifier=verifier)


def test_the_law_is_the_targets_own(model_check: ModelCheck) -> None:
    model = target()

    def after(tokens: Sequence[int]) -> dict[int, float]:
        best = (model.logits(tokens).double() / 1.3).topk(3)
        return dict(zip(best.indices.tolist(), best.values.softmax(0).tolist(), strict=True))

    expected = {}
    for a, p in after(PROMPT).items():
        for b, q in after([*PROMPT, a]).items():
            for c, r in after([*PROMPT, a, b]).items():
                expected[a, b, c] = p * q * r
    assert len(expected) == 3**LENGTH
    assert model_check.law == pytest.approx(expected, abs=1e-6)
    assert model_check.plain == model.greedy(PROMPT, GREEDY_TOKENS)


@pytest.mark.parametrize("name", ["ar", "pld", "tr:budget=8", "goose:budget=8"])
def test_methods_pass(model_check: ModelCheck, name: str) -> None:
    sampled = model_check.check_sampled(name, method(name), 400)
    assert sampled.passed, str(sampled)
    assert sampled.samples == 400
    assert 10 < sampled.degrees < 27
    assert (sampled.accepted > 0) == (name != "ar")
    assert "400 continuations of 3 tokens" in str(sampled)
    greedy = model_check.check_greedy(name, method(name))
    assert greedy.passed
    assert str(greedy) == f"greedy: {GREEDY_TOKENS} tokens, all as plain decoding's"


@pytest.mark.parametrize("name", ["ar", "pld"])
def test_an_end_token_among_the_likely_ones_is_no_failure(name: str) -> None:
    model = target()
    model.info = replace(model.info, eos=frozenset({2}))
    sampled = ModelCheck(model, None, PROMPT, SAMPLING).check_sampled(name, method(name), 400)
    assert sampled.passed, str(sampled)


@pytest.mark.parametrize("verifier", [Eager(), Lazy()], ids=["eager", "lazy"])
def test_wrong_methods_do_not(model_check: ModelCheck, verifier: Rejection) -> None:
    sampled = model_check.check_sampled("wrong", wrong(verifier), 400)
    assert not sampled.passed
    assert sampled.p_value < 1e-6


def test_a_wrong_greedy_token_is_told(model_check: ModelCheck) -> None:
    greedy = model_check.check_greedy("wrong", wrong(Lazy()))
    assert not greedy.passed
    assert greedy.differs is not None
    best = target().logits([*PROMPT, *model_check.plain[: greedy.differs]]).topk(2).values
    assert greedy.gap == pytest.approx(float(best[0] - best[1]))
    assert "apart" in str(greedy)


class Tied(MarkovTarget):
    """Two tokens are as likely as one another after everything, but for rounding."""

    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        found = torch.zeros(5)
        found[3], found[0] = 8.0, 8.0 - 1e-6
        return found


def test_a_prompt_must_leave_room() -> None:
    with pytest.raises(DraftwoodError, match="shorten the prompt"):
        ModelCheck(MarkovTarget(5, context_limit=len(PROMPT) + 3), None, PROMPT, SAMPLING)


def test_in_low_precision_a_failure_says_so(model_check: ModelCheck) -> None:
    check = model_check.check_sampled("ar", method("ar"), 200)
    assert "top k" not in str(replace(check, dtype="bfloat16"))
    assert "top k" not in str(replace(check, passed=False))
    assert "--dtype float32" in str(replace(check, passed=False, dtype="bfloat16"))
    assert "this shows little" in str(check)


def test_a_near_tie_is_no_failure() -> None:
    model_check = ModelCheck(Tied(5), None, PROMPT, SAMPLING)
    greedy = model_check.check_greedy("other", wrong(Lazy()))
    assert greedy.passed
    assert greedy.differs == 1  # the prefill's token is nobody's choice
    assert "rounding only" in str(greedy)


@dataclass(frozen=True)
class Third(Rejection):
    """Wrong even where two tokens are tied: takes none of them."""

    def _one(self, case: Verification) -> Verdict:
        return Verdict((), 1)


def test_a_near_tie_excuses_no_third_token() -> None:
    model_check = ModelCheck(Tied(5), None, PROMPT, SAMPLING)
    assert not model_check.check_greedy("other", wrong(Third())).passed


def test_seeds_are_the_requests_own(model_check: ModelCheck) -> None:
    first = model_check.check_sampled("ar", method("ar"), 300)
    again = model_check.check_sampled("ar", method("ar"), 300)
    other = ModelCheck(target(), None, PROMPT, replace(SAMPLING, seed=2**64 - 3))
    assert first == again
    assert other.check_sampled("ar", method("ar"), 300).statistic != first.statistic


@pytest.mark.parametrize(("temperature", "top_k"), [(0.0, 4), (1.0, 0), (1.0, 1), (1.0, 17)])
def test_what_cannot_be_counted_is_refused(temperature: float, top_k: int) -> None:
    with pytest.raises(DraftwoodError, match="top_k from 2 to 16"):
        check_countable(SamplingParams(temperature=temperature, top_k=top_k))


def test_too_few_samples_are_refused(model_check: ModelCheck) -> None:
    with pytest.raises(DraftwoodError, match="4 samples are too few"):
        model_check.check_sampled("ar", method("ar"), 4)
