"""A drafter that yields no numbers: its word is no evidence, and no token changes."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.methods import method, recipes
from draftwood.methods.binding import kinds_of, model_flags
from draftwood.policies.auto.features import NEURAL, TABLE, Codes, ranked_codes
from draftwood.policies.auto.pool import Pool
from draftwood.policies.auto.sampled_pool import SampledPool
from draftwood.protocols import DraftDtype, DraftHead, DraftModel, Target, Translation
from draftwood.sampling.sampler import SamplingParams
from draftwood.tree import ROOT
from tests.factories.complete_methods import complete
from tests.factories.markov_target import FakeHost, M, MarkovTarget

PROMPT = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5)
BAD = [math.nan, math.inf, -math.inf]


@dataclass
class Even:
    asked: list[Codes] = field(default_factory=list)

    def probability(self, codes: Codes) -> float:
        self.asked.append(codes)
        return 0.5


def logq(*values: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.array([values], dtype=np.float32)


def row(*tokens: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array([tokens], dtype=np.int64)


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("kind", [Pool, SampledPool])
def test_a_score_that_is_no_number_is_no_evidence(bad: float, kind: type[Pool]) -> None:
    chances = Even()
    pool = kind(1, chances, 0.01, 64)
    assert pool.offer(NEURAL, "draft", [ROOT], row(5, 6), logq(bad, bad)) == []
    assert not chances.asked
    # Of a row that is numbers in part, that part counts, each at its own place.
    scores = logq(math.log(0.6), bad, math.log(0.1))
    pool.offer(NEURAL, "draft", [ROOT], row(5, 6, 7), scores)
    assert pool.builder.tokens[1:] == [5, 7]
    codes = ranked_codes(logq(math.log(0.6), -1.0, math.log(0.1)))[0].tolist()
    assert [said[NEURAL] for said in chances.asked] == [codes[0], codes[2]]


@pytest.mark.parametrize("bad", BAD)
def test_what_else_was_offered_is_not_counted_against(bad: float) -> None:
    """A candidate of the table: a model that yields no numbers does not leave it out."""
    pool = Pool(1, Even(), 0.01, 64)
    pool.offer(TABLE, "table", [ROOT], row(8), logq(-0.5))
    before = list(pool.codes)
    pool.offer(NEURAL, "draft", [ROOT], row(5, 8), logq(bad, bad))
    assert pool.codes == before


def test_nothing_is_promised_of_it() -> None:
    pool = SampledPool(1, Even(), 0.01, 64)
    found = pool.promised(NEURAL, ROOT, row(5, 6, 7)[0], logq(-1.0, math.nan, math.inf)[0])
    assert found == [0.5]


class Broken(MarkovTarget):
    """A draft model some or all of whose rows hold something that is no number."""

    def __init__(self, bad: float, every: int, vocab_size: int) -> None:
        super().__init__(vocab_size, seed=7, sharpness=1.5)
        self.table[:, ::every] = bad


@dataclass
class BrokenHost(FakeHost):
    bad: float = math.nan
    every: int = 1

    def model(self, name: Any, dtype: DraftDtype = "auto") -> tuple[DraftModel, Translation | None]:
        broken, (whole, _) = Broken(self.bad, self.every, self.info.vocab_size), super().model(name)
        broken.info = whole.info
        return broken, None

    def head(self, name: Any, dtype: DraftDtype = "auto") -> tuple[DraftHead, DraftModel]:
        head, model = super().head(name)
        assert isinstance(head, Eagle3Head)
        for weight in head.parameters():
            weight.data.fill_(self.bad)
        return head, model

    def loaded(
        self, load: Callable[[str, Target, torch.dtype], M], name: Any, dtype: DraftDtype = "auto"
    ) -> M:
        found = super().loaded(load, name)
        for weight in found.parameters():
            weight.data.fill_(self.bad)
        return found


def drafting() -> list[str]:
    """Every method with a draft model or a head, and the default with each."""
    kinds = [kind for flag in model_flags() for kind in kinds_of(flag)]
    found = [*(f"auto:drafter={kind}" for kind in kinds), "goose:adjacency=model"]
    for name, recipe in recipes().items():
        if recipe.drafters.get("draft") in kinds and name != "auto":
            found.append(name)
    return found


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize(
    "bad", [math.nan, *(pytest.param(bad, marks=pytest.mark.slow) for bad in BAD[1:])]
)
@pytest.mark.parametrize("name", drafting())
def test_no_token_changes_where_a_draft_model_yields_no_numbers(
    name: str, bad: float, every: int
) -> None:
    target = MarkovTarget(sharpness=1.5)
    requests = [Request(PROMPT[: 4 + i], 25) for i in range(3)]
    host = BrokenHost(target.info, bad, every)
    done = Engine(target, method(complete(name)), host=host).generate(requests)
    assert [c.tokens for c in done] == [target.greedy(r.ids, 25) for r in requests]
    # Above temperature 0 drawing has to cope with it too.
    sampled = [Request(PROMPT, 25, SamplingParams(0.9, seed=i)) for i in range(3)]
    done = Engine(target, method(complete(name)), host=host).generate(sampled)
    assert [len(c.tokens) for c in done] == [25] * 3
