"""Chains unrolled over text against the same chains drafted one by one."""

from copy import deepcopy
from typing import Any

import pytest
import torch

from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.errors import DraftwoodError
from draftwood.lab.train.eagle3 import unroll
from tests.factories.trainable_heads import EVERY_OTHER, as_drafting, random_head, teacher, text

LENGTH, STEPS = 11, 4


def plain(head: Eagle3Head) -> Eagle3Head:
    """The same head with transformers' own attention."""
    twin = Eagle3Head(deepcopy(head.config))
    twin.set_attn_implementation("sdpa")
    twin.load_state_dict(head.state_dict())
    twin.set_input_embeddings(head.get_input_embeddings())
    return twin


@pytest.mark.parametrize(
    "plan",
    [
        {},
        {"kv_heads": 4},
        {"heads": 8, "kv_heads": 1, "head_dim": 4, "ffn": 10},
        {"taps": (0, 3)},
    ],
    ids=str,
)
@torch.no_grad()
def test_every_chain_is_the_drafted_one(plan: dict[str, Any]) -> None:
    target = teacher()
    head = random_head(target, EVERY_OTHER, **plan)
    twin, tokens = plain(head), text(2, LENGTH)
    features = target.read(tokens, tuple(head.config.taps)).features
    outputs = unroll(head, features, tokens, STEPS)
    assert [out.shape[1] for out in outputs] == [10, 9, 8, 7]
    for row in range(len(tokens)):
        for start in range(LENGTH - 1):
            steps = min(STEPS, LENGTH - 1 - start)
            logits, hidden = as_drafting(twin, features[row], tokens[row], start, steps)
            found = torch.stack([outputs[k][row, start] for k in range(steps)])
            torch.testing.assert_close(found, hidden, atol=2e-5, rtol=2e-5)
            scored = head.lm_head(head.norm(found))
            torch.testing.assert_close(scored, logits, atol=2e-5, rtol=2e-5)


def test_gradients_are_those_of_the_drafted_chains() -> None:
    target = teacher()
    head = random_head(target, EVERY_OTHER)
    twin, tokens = plain(head), text(1, LENGTH)
    features = target.read(tokens, tuple(head.config.taps)).features
    count = LENGTH - STEPS
    weights = torch.randn(STEPS, count, 16, generator=torch.Generator().manual_seed(3))

    outputs = unroll(head, features, tokens, STEPS)
    found = sum((w * out[0, :count]).sum() for w, out in zip(weights, outputs, strict=True))
    chains = [as_drafting(twin, features[0], tokens[0], i, STEPS)[1] for i in range(count)]
    wanted = (weights * torch.stack(chains, 1)).sum()
    torch.testing.assert_close(found, wanted, atol=1e-3, rtol=1e-5)

    layers = [[h.fc, *h.midlayer.modules()] for h in (head, twin)]
    parameters = [[p for m in part for p in m.parameters(recurse=False)] for part in layers]
    slopes = (
        torch.autograd.grad(total, of)
        for total, of in zip((found, wanted), parameters, strict=True)
    )
    for ours, theirs in zip(*slopes, strict=True):
        assert theirs.abs().max() > 1e-2
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-4)


@torch.no_grad()
def test_a_head_made_for_unrolling_still_runs_by_itself() -> None:
    target = teacher()
    head = random_head(target, EVERY_OTHER)
    tokens = text(2, LENGTH)
    hidden = head.project(target.read(tokens, tuple(head.config.taps)).features)
    ours, theirs = (h(tokens, hidden=hidden) for h in (head, plain(head)))
    assert torch.equal(ours.logits, theirs.logits)
    assert torch.equal(ours.hidden, theirs.hidden)


def test_a_head_that_attends_otherwise_is_refused() -> None:
    head = plain(random_head(teacher(), EVERY_OTHER))
    with pytest.raises(DraftwoodError, match="'sdpa'; to unroll it"):
        unroll(head, torch.zeros(1, 5, 48), text(1, 5), 2)
