"""Texts that come to a dead end fail, and no others: not those that only drafted it."""

from collections import Counter, defaultdict
from itertools import product

import pytest
import torch
from transformers import LogitsProcessor

from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.chi_square import ChiSquare, chi_square
from draftwood.methods import method
from draftwood.sampling.sampler import Sampler, SamplingParams
from tests.factories.dead_ends import refuse_dead_ends
from tests.factories.similar_draft import SimilarDraft, target

PROMPT = tuple(int(token) for token in "010203041121314223324344")
LENGTH, SAMPLES, DEADLY = 5, 1200, 0


class Dying(LogitsProcessor):
    """Leaves no token after a deadly one: raises an exception or bans all."""

    keeps_state = False

    def __init__(self, *, raises: bool) -> None:
        self.raises = raises

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.shape[1] == len(PROMPT) or input_ids[0, -1] != DEADLY:
            return scores
        if self.raises:
            raise LookupError("nothing follows")
        return torch.full_like(scores, -torch.inf)


@pytest.fixture(scope="module")
def law() -> dict[tuple[int, ...], float]:
    """The first token of a text that ends, and all that fail as one outcome."""
    p: dict[tuple[int, ...], list[float]] = {}
    found: dict[tuple[int, ...], float] = defaultdict(float)
    for text in product(range(5), repeat=LENGTH):
        share = 1.0
        for i, token in enumerate(text):
            if text[:i] not in p:
                p[text[:i]] = target().logits([*PROMPT, *text[:i]]).double().softmax(0).tolist()
            share *= p[text[:i]][token]
        found[() if DEADLY in text[:-1] else text[:1]] += share
    return found


def counted(name: str, law: dict[tuple[int, ...], float], *, raises: bool = False) -> ChiSquare:
    model = target()
    engine = Engine(model, method(name), host=SimilarDraft(model.info, divisor=4))
    sampler = Sampler.from_processors([Dying(raises=raises)], temperature=1.0)
    requests = [
        Request(PROMPT, LENGTH, SamplingParams(1.0, seed=seed), eos=(), sampler=sampler)
        for seed in range(SAMPLES)
    ]
    done = engine.generate(requests)
    return chi_square(Counter(() if c.error else c.tokens[:1] for c in done), law)


METHODS = ["traversal:draft=x:shape=2x2x1", "block:draft=x", "rrsw:draft=x:shape=2x2x1"]


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_as_many_texts_fail_as_in_plain_decoding(
    name: str, law: dict[tuple[int, ...], float], *, raises: bool
) -> None:
    assert 0.1 < law[()] < 0.5
    assert counted(name, law, raises=raises).p_value > 1e-3


@pytest.mark.parametrize("name", METHODS[:2])
def test_the_count_would_find_drafts_that_fail(
    name: str, law: dict[tuple[int, ...], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_dead_ends(monkeypatch, DraftwoodError("no token can follow"))
    assert counted(name, law).p_value < 1e-4
