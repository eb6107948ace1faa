"""Drawn tokens come to the host with a forward's output, in the caller's order."""

import numpy as np
import pytest
import torch

from draftwood.protocols import Needs
from draftwood.runner.attach import attach
from draftwood.tree import tree_of
from tests.factories.tiny_llama import tiny_llama
from tests.simulated_cuda import SimulatedCuda, to_simulated

TREES = [tree_of([5, 6, 7], [-1, 0, 0]), tree_of([8], [-1]), tree_of([9, 3], [-1, 0])]
DRAWN = [[1, 2, 3], None, [4, -1]]


@pytest.mark.parametrize("top_k", [0, 4])
def test_drawn_tokens_come_with_the_rows(top_k: int) -> None:
    runner = attach(tiny_llama(), packing=False)
    first, *others = (runner.open(20) for _ in TREES)
    slots = [*others, first]  # not its own inverse, as a reversal would be
    needs = Needs(top_k=top_k)
    runner.prefill(slots, [[1, 2, 3], [4, 5], [6]], needs)
    plain = runner.forward(slots, TREES, needs)
    numbers = np.arange(5)
    submitted = runner.submit(slots, TREES, needs, numbers)
    assert submitted.numbers.tolist() == [0, 1, 2, 3, 4]
    drawn = [None if each is None else torch.tensor(each) for each in DRAWN]
    rows = submitted.rows(drawn)
    logits = runner.submit(slots, TREES, needs).logits
    for own, expected, tokens, raw in zip(rows, plain, DRAWN, logits, strict=True):
        assert (None if own.drawn is None else own.drawn.tolist()) == tokens
        assert own.argmax.tolist() == expected.argmax.tolist()
        assert own.top_tokens.tolist() == expected.top_tokens.tolist()
        assert torch.equal(own.logits, raw)


def test_from_a_device_they_come_in_the_same_copy() -> None:
    with SimulatedCuda() as device:
        runner = attach(to_simulated(tiny_llama()), packing=False)
        slot = runner.open(20)
        runner.prefill([slot], [[1, 2, 3]], Needs())
        submitted = runner.submit([slot], TREES[:1], Needs(top_k=2))
        device.work.clear()
        drawn = submitted.logits[0].argmin(dim=-1)
        (rows,) = submitted.rows([drawn])
        assert device.work.downloads.total() == device.work.waits.total() == 1
        assert rows.drawn is not None
        assert rows.drawn.tolist() == drawn.cpu().tolist()
