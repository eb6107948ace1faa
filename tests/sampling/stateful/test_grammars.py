"""A grammar's processor under every way to verify: each path is masked by its own tokens."""

import gc
from functools import cache
from weakref import WeakSet

import pytest
import torch

from draftwood.engine.engine import Engine
from draftwood.engine.request import Completion, Request
from draftwood.errors import DraftwoodError
from draftwood.methods import method
from draftwood.sampling.sampler import Sampler, SamplingParams
from draftwood.sampling.stateful import PathProcessor
from draftwood.sampling.stateful.copying import Copier
from tests.factories.grammars import STOP, Forking, Grammar, Matcher, Rolling, Sealed, Twin, allowed
from tests.factories.markov_target import FakeHost, MarkovTarget

METHODS = ["ar", "goose", "rrsw", "traversal", "block", "mixed", "auto", "auto:drafter=model"]
PROMPTS = [(1, 5, 2, 7, 1, 5, 2, 7, 1), (3, 3, 4), (9, 0, 2, 9, 0)]
SEEDS = range(12)
MAKES = [
    (Matcher, 1),
    (Forking, 2),
    (Rolling, 1),
    pytest.param(Forking, 12, marks=pytest.mark.slow),
]


def decode(name: str, processors: list[object], temperature: float, seed: int) -> Completion:
    """The first prompt, by a sampler with one processor, others beside it with the rest."""
    target = MarkovTarget(sharpness=1.5)
    requests = [
        Request(
            prompt,
            24,
            SamplingParams(seed=seed + i),
            eos=frozenset({STOP}),
            sampler=Sampler.from_processors([processor], temperature=temperature),  # type: ignore[list-item]
        )
        for i, (prompt, processor) in enumerate(zip(PROMPTS, processors, strict=False))
    ]
    engine = Engine(target, method(name), host=FakeHost(target.info))
    return engine.generate(requests)[0]


@cache
def expected(name: str, temperature: float, seed: int, rows: int = 1) -> tuple[int, ...]:
    twins: list[object] = [Twin(i, len(PROMPTS[i])) for i in range(rows)]
    return decode(name, twins, temperature, seed).tokens


@pytest.mark.parametrize(("make", "seeds"), MAKES)
@pytest.mark.parametrize("name", METHODS)
def test_a_path_is_masked_by_its_own_tokens(name: str, make: type[Matcher], seeds: int) -> None:
    given = Grammar(make, 0)
    for temperature, count in ((1.0, seeds), (0.0, 1)):
        for seed in SEEDS[:count]:
            found = decode(name, [given], temperature, seed)
            assert found.tokens == expected(name, temperature, seed)
    assert not given.matchers, "only copies are asked, so one processor serves many requests"


@pytest.mark.parametrize("make", [Forking, Rolling])
@pytest.mark.parametrize("name", METHODS)
def test_requests_of_a_batch_have_states_of_their_own(name: str, make: type[Matcher]) -> None:
    for seed in SEEDS[:1]:
        grammars: list[object] = [Grammar(make, rule) for rule in range(3)]
        # A batch only decides how much auto drafts, which it may decide otherwise for a batch.
        assert decode(name, grammars, 1.0, seed).tokens == expected(name, 1.0, seed, rows=3)


def test_greedy_decoding_is_plain_decodings() -> None:
    plain = decode("ar", [Grammar(Forking, 0)], 0.0, 0).tokens
    assert len(plain) > 5
    for name in METHODS:
        assert decode(name, [Grammar(Forking, 0)], 0.0, 0).tokens == plain


@pytest.mark.parametrize("name", ["traversal", "block", "mixed"])
def test_without_copies_calls_are_out_of_order(name: str) -> None:
    """Negative control."""
    failed = 0
    for seed in SEEDS:
        grammar = Grammar(Forking, 0)
        grammar.keeps_state = False  # type: ignore[attr-defined]
        try:
            failed += decode(name, [grammar], 1.0, seed).tokens != expected(name, 1.0, seed)
        except (AssertionError, DraftwoodError):
            failed += 1
    assert failed


class Probing(Grammar):
    """Looks ahead with its matcher, and takes that back."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        found = super().__call__(input_ids, scores)
        for matcher in self.matchers:
            if not matcher.is_terminated():
                assert matcher.accept_token(int(found[0].argmax()))
                matcher.rollback(1)  # type: ignore[attr-defined]
        return found


@pytest.mark.parametrize("name", METHODS)
def test_a_processor_may_take_its_matcher_back(name: str) -> None:
    for seed in SEEDS[:2]:
        assert decode(name, [Probing(Rolling, 0)], 1.0, seed).tokens == expected(name, 1.0, seed)


def test_a_matcher_is_not_taken_back_beyond_its_first_copy() -> None:
    grammar = Grammar(Rolling, 0)
    grammar.matchers = [Rolling(0)]
    assert grammar.matchers[0].accept_token(allowed((), 0)[0])
    [state] = Copier("Grammar").copy(grammar).matchers
    with pytest.raises(DraftwoodError, match="takes back 1 tokens of its matcher"):
        state.rollback(1)


def test_a_sequence_leaves_no_matcher_behind() -> None:
    made: WeakSet[Rolling] = WeakSet()

    class Counted(Rolling):
        def __init__(self, rule: int) -> None:
            super().__init__(rule)
            made.add(self)

    given = PathProcessor(Grammar(Counted, 0))
    for _ in range(3):
        processor = given.fresh()
        for ids in ([5], [5, *allowed((), 0)[:1]]):
            processor(torch.tensor([ids]), torch.zeros(1, STOP + 1))
        assert made
    del processor
    gc.collect()
    assert not made


def test_matchers_without_a_copy_are_refused_by_name() -> None:
    """Before any work, if it is there, and otherwise when it first appears."""
    grammar = Grammar(Sealed, 0)
    grammar.matchers = [Sealed(0)]
    with pytest.raises(DraftwoodError, match=r"Grammar .* cannot be copied \(cannot pickle 'Seal"):
        Sampler.from_processors([grammar], temperature=1.0)
