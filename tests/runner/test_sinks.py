"""Attention sinks (gpt-oss): logits, the self-test and the tokens of ``generate``, past the window.

transformers computes these models with eager attention only.
"""

from typing import Any

import numpy as np
import pytest
import torch

from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.methods import method as make_method
from draftwood.protocols import Needs
from draftwood.runner import attention
from draftwood.runner.attach import attach
from tests.factories.model_families import FAMILIES, VOCAB, WINDOW
from tests.factories.path_logits import (
    TOLERANCE,
    greedy_tokens,
    path_logits,
    plain_logits,
    random_prompts,
    random_tree,
)
from tests.factories.path_logits import worst as worst_of

NEW = 20


@pytest.fixture
def model() -> Any:
    """With sinks that take a good share of the weights, different for every head."""
    made = FAMILIES["gpt_oss"]()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for layer in made.model.layers:
            layer.self_attn.sinks.copy_(torch.randn(4, generator=generator) + 2)
    return made


def test_logits_are_those_of_eager_attention(model: Any) -> None:
    assert model.config._attn_implementation == "eager"
    rng = np.random.default_rng(0)
    prompts = random_prompts(rng, (WINDOW + 9, WINDOW - 3, 4), VOCAB)
    trees = [random_tree(rng, 12, VOCAB) for _ in prompts]
    expected = [path_logits(model, p, t) for p, t in zip(prompts, trees, strict=True)]
    last = [plain_logits(model, prompt)[-1:] for prompt in prompts]
    for chunk in (512, 7):
        runner = attach(model, chunk=chunk)
        slots = [runner.open(64) for _ in prompts]
        for rows, wanted in zip(runner.prefill(slots, prompts, Needs()), last, strict=True):
            assert worst_of(rows, wanted) < TOLERANCE
        for rows, wanted in zip(runner.forward(slots, trees, Needs()), expected, strict=True):
            assert worst_of(rows, wanted) < TOLERANCE
        runner.detach()


@pytest.mark.parametrize("name", ["ar", "goose:budget=12"])
def test_tokens_are_those_of_generate(model: Any, name: str) -> None:
    rng = np.random.default_rng(1)
    prompts = [random_prompts(rng, (7,), VOCAB)[0] * 5, *random_prompts(rng, (WINDOW, 5), VOCAB)]
    expected = [greedy_tokens(model, torch.tensor([p]), NEW)[len(p) :] for p in prompts]
    runner = attach(model)
    engine = Engine(runner, make_method(name))
    requests = [Request(tuple(prompt), NEW, eos=frozenset()) for prompt in prompts]
    assert [list(found.tokens) for found in engine.generate(requests)] == expected
    for request, tokens in zip(requests, expected, strict=True):
        assert [list(found.tokens) for found in engine.generate([request])] == [tokens]
    runner.detach()


def test_ignored_sinks_fail_the_self_test(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = attention._unfused
    monkeypatch.setattr(attention, "_unfused", lambda *given: whole(*given[:-1]))
    with pytest.raises(DraftwoodError, match="self-test failed"):
        attach(model)
