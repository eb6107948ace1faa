"""CUDA graphs on a GPU: two models whose caches grow and whose forwards are recorded in turn."""

from typing import Any

import numpy as np
import pytest
import torch

from draftwood.protocols import Needs
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from tests.factories.path_logits import path_logits, random_prompts, random_tree, worst
from tests.factories.tiny_llama import VOCAB, tiny_llama

_TOLERANCE = 1e-3


def check(runner: Runner, slot: int, text: list[int], rng: np.random.Generator) -> None:
    for nodes in (1, 6, 6, 30, 1):
        tree = random_tree(rng, nodes, VOCAB)
        [rows] = runner.forward([slot], [tree], Needs())
        assert worst(rows, path_logits(runner.model, text, tree)) < _TOLERANCE


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_recorded_forwards_follow_two_models_and_a_growing_cache() -> None:
    rng = np.random.default_rng(0)
    models: list[Any] = [tiny_llama(seed=seed, context=4096) for seed in range(2)]
    runners = [attach(model.to("cuda")) for model in models]
    assert all(runner._forward_pass.static is not None for runner in runners)
    texts = random_prompts(rng, (40, 25), VOCAB)
    slots = [runner.open(200) for runner in runners]
    for runner, slot, text in zip(runners, slots, texts, strict=True):
        runner.prefill([slot], [text], Needs())
    for grown in (False, True, True):
        if grown:  # the first model's alone, whose graphs are then gone
            cache = runners[0].cache
            cache.make_room([cache.row(slots[0])], [cache.size])
        for runner, slot, text in zip(runners, slots, texts, strict=True):
            check(runner, slot, text, rng)
    static = runners[0]._forward_pass.static
    assert static is not None
    assert not static.refused
    torch.cuda.synchronize()
