"""Draws for all nodes at once are those that a verifier asks for one by one."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LogitsProcessor

from draftwood.errors import DraftwoodError
from draftwood.protocols import TargetOutput
from draftwood.sampling import device_draws
from draftwood.sampling.ahead import DrawsAhead
from draftwood.sampling.distributions import TreeDistributions
from draftwood.sampling.history import History
from draftwood.sampling.noise import RequestNoise
from draftwood.sampling.sampler import Sampler, SamplingParams
from draftwood.tree import TokenTree, tree_of

V = 40
TREE = tree_of([7, 1, 2, 1, 3, 9], [-1, 0, 0, 1, 2, 4])
SETTINGS: list[dict[str, Any]] = [
    {"temperature": 1.0},
    {"temperature": 0.7, "top_k": 9, "top_p": 0.9, "min_p": 0.01},
    {"temperature": 1.2, "repetition_penalty": 1.4, "top_p": 0.8},
    {"presence_penalty": 0.5, "frequency_penalty": 0.25},
    {"temperature": 0.8, "logit_bias": {3: 2.0}, "banned_tokens": (1, 2), "frequency_penalty": 0.5},
]


@dataclass
class Given:
    """A forward with these logits."""

    logits: list[torch.Tensor]
    numbers: torch.Tensor

    def rows(self, drawn: object = ()) -> list[TargetOutput]:
        raise NotImplementedError

    def rows_with(self, drawn: object, further: object) -> tuple[list[TargetOutput], list[Any]]:
        raise NotImplementedError


@dataclass
class Running:
    """A request with a tree."""

    sampler: Sampler
    tree: TokenTree = TREE
    seed: int = 2**64 - 9

    def __post_init__(self) -> None:
        self.history = History([4, 4, 5, int(self.tree.tokens[0])])
        self.noise = RequestNoise(self.seed, len(self.history) - 1)
        generator = torch.Generator().manual_seed(self.seed % 1000)
        self.logits = torch.randn(len(self.tree), V, generator=generator) * 2

    def p(self, drawn: torch.Tensor | None = None) -> TreeDistributions:
        none = np.zeros((len(self.tree), 0))
        best = np.where(self.logits.isnan().any(1), -1, self.logits.argmax(1))
        rows = TargetOutput(
            self.logits,
            best,
            none.astype(np.int64),
            none.astype(np.float32),
            drawn=None if drawn is None else drawn.numpy(),
        )
        return TreeDistributions(rows, self.tree, self.sampler, self.history)

    def one_by_one(self) -> list[int]:
        return [self.p().draw(node, self.noise) for node in range(len(self.tree))]


def drawn(requests: list[Running]) -> list[torch.Tensor | None]:
    draws = DrawsAhead()
    for each in requests:
        draws.add(each.tree, each.sampler, each.history, each.noise)
    assert draws.any
    return draws.draw(Given([r.logits for r in requests], torch.from_numpy(draws.numbers)))


def sampler(setting: dict[str, Any]) -> Sampler:
    return Sampler(SamplingParams(**setting), 3)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_all_nodes_get_the_tokens_of_single_draws(setting: dict[str, Any]) -> None:
    for seed in range(10):
        request = Running(sampler(setting), seed=seed)
        (found,) = drawn([request])
        assert found is not None
        assert found.tolist() == request.one_by_one()
        ahead_of_it = request.p(found)
        assert [ahead_of_it.draw(n, request.noise) for n in range(6)] == request.one_by_one()


@pytest.mark.parametrize("most", [1, device_draws.MOST])
def test_requests_of_a_batch_do_not_depend_on_one_another(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_draws, "MOST", most)
    small = tree_of([3], [-1])
    requests = [
        Running(sampler(setting), tree, seed)
        for seed, (setting, tree) in enumerate(
            [(setting, tree) for setting in SETTINGS for tree in (TREE, small)]
        )
    ]
    for request, found in zip(requests, drawn(requests), strict=True):
        assert found is not None
        assert found.tolist() == request.one_by_one()


def test_what_cannot_be_drawn_ahead_is_left_to_the_verifier() -> None:
    class Foreign(LogitsProcessor):
        keeps_state = False

        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            return scores

    requests = [
        Running(Sampler(SamplingParams(), 3)),
        Running(Sampler.from_processors([Foreign()], temperature=1.0)),
        Running(sampler(SETTINGS[0])),
    ]
    assert [found is None for found in drawn(requests)] == [True, True, False]
    draws = DrawsAhead()
    for each in requests[:2]:
        draws.add(each.tree, each.sampler, each.history, each.noise)
    assert not draws.any
    assert not len(draws.numbers)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_nodes_without_a_token_are_refused_when_they_are_asked_for(setting: dict[str, Any]) -> None:
    request = Running(sampler(setting))
    request.logits[1, 3] = math.nan
    request.logits[2] = -math.inf
    (found,) = drawn([request])
    assert found is not None
    p = request.p(found)
    assert p.draw(0, request.noise) == request.p().draw(0, request.noise)
    with pytest.raises(DraftwoodError, match="not numbers at position 5"):
        p.draw(1, request.noise)
    with pytest.raises(DraftwoodError, match="no token can follow at position 5"):
        p.draw(2, request.noise)
