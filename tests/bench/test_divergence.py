"""First differences, and the gap of the untouched model there."""

from dataclasses import replace

import pytest
import torch

from draftwood.bench.divergence import Divergence, divergence, explain, top_two_gap
from draftwood.models import Loaded
from draftwood.noise import RequestNoise
from draftwood.sampling import SamplingParams
from tests.bench.made import run, turn
from tests.tiny import tiny_llama, tiny_tokenizer


def test_equal_tokens_do_not_diverge() -> None:
    assert divergence(run(turn((1, 2)), turn((3,))), run(turn((1, 2)), turn((3,)))) is None


@pytest.mark.parametrize(
    ("tokens", "wanted"),
    [
        ((1, 2, 9), Divergence("a/0", 5, 0, 0, 2, 3, 9)),
        ((1, 2), Divergence("a/0", 5, 0, 0, 2, 3, None)),
        ((1, 2, 3, 4), Divergence("a/0", 5, 0, 0, 3, None, 4)),
    ],
)
def test_finds_the_first_difference(tokens: tuple[int, ...], wanted: Divergence) -> None:
    assert divergence(run(turn(tokens), run_seed=5), run(turn((1, 2, 3)), run_seed=5)) == wanted


def test_a_later_turn_is_named() -> None:
    found = divergence(run(turn((1,)), turn((5,))), run(turn((1,)), turn((6,))))
    assert found is not None
    assert (found.turn, found.position) == (1, 0)


def test_explain_asks_for_the_reference_up_to_the_difference() -> None:
    asked: list[tuple[int, ...]] = []

    def gap(tokens: object) -> float:
        assert isinstance(tokens, tuple)
        asked.append(tokens)
        return 1e-6

    reference = run(turn((4, 5, 6), context=(1, 2)))
    found = explain(Divergence("a/0", 5, 0, 0, 2, 6, 9), reference, gap)
    assert asked == [(1, 2, 4, 5)]
    assert found.near_tie
    assert not explain(replace(found), reference, lambda tokens: 1e-4).near_tie


def test_the_gap_is_that_of_a_plain_forward() -> None:
    model = tiny_llama()
    stock = Loaded("tiny", model, tiny_tokenizer(), frozenset())
    with torch.inference_mode():
        logits = model(torch.tensor([[5, 6, 7]])).logits[0, -1]
    first, second = sorted(logits.tolist())[-2:][::-1]
    assert top_two_gap(stock, [5, 6, 7], SamplingParams()) == pytest.approx(first - second)


def test_the_gap_of_a_draw_is_what_its_logits_may_move() -> None:
    model = tiny_llama()
    stock = Loaded("tiny", model, tiny_tokenizer(), frozenset())
    with torch.inference_mode():
        logits = model(torch.tensor([[5, 6, 7]])).logits[0, -1]
    for seed in range(20):
        sampling = SamplingParams(temperature=0.7, seed=seed)
        gap = top_two_gap(stock, [5, 6, 7], sampling)
        noise = RequestNoise(seed, 2)
        drawn = noise.choose(0, torch.softmax(logits / 0.7, -1))
        for push, same in ((gap - 1e-3, True), (gap + 1e-3, False)):
            moved = logits.clone()
            moved[drawn] -= push
            found = noise.choose(0, torch.softmax(moved / 0.7, -1))
            assert (found == drawn) == same
