"""The head's loss and its judgement against sums over single chains."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.lab.train import loss as losses
from draftwood.lab.train.corpus import Domain
from draftwood.lab.train.evaluate import drafted_chains
from draftwood.lab.train.head_loss import HeadLoss
from draftwood.lab.train.loss import Labels, chunked_loss
from draftwood.lab.train.teacher import Teacher
from tests.factories.trainable_heads import EVERY_OTHER, as_drafting, random_head, teacher, text

STEPS = 3


def test_the_chunked_loss_is_weighted_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    # Blocks of the fewest rows, so that several are gone through, the last one shorter.
    monkeypatch.setattr(losses, "_CPU_BLOCK", 1)
    torch.manual_seed(3)
    hidden = torch.randn(2, 150, 12, requires_grad=True)
    head = torch.randn(20, 12, requires_grad=True)
    weights, worth = torch.rand(2, 150), torch.randint(2, (150,)).float()
    log_q = torch.randn(150, 20).log_softmax(-1)
    q = log_q.exp()
    found = chunked_loss(
        hidden,
        head,
        weights,
        lambda part: Labels(q[part], (q * log_q)[part].sum(1), worth[part]),
    )
    gaps = functional.kl_div(
        (hidden @ head.T).log_softmax(-1), log_q.exp().expand(2, 150, 20), reduction="none"
    ).sum(-1)
    expected = (weights * worth * gaps).sum()
    torch.testing.assert_close(found, expected)
    for ours, theirs in zip(
        torch.autograd.grad(2 * found, (hidden, head)),
        torch.autograd.grad(2 * expected, (hidden, head)),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_a_frozen_output_matrix_gets_no_gradient() -> None:
    torch.manual_seed(3)
    hidden, head = torch.randn(1, 5, 12, requires_grad=True), torch.randn(20, 12)
    q = torch.randn(5, 20).softmax(-1)

    def gradient(head: Tensor) -> Tensor:
        loss = chunked_loss(
            hidden,
            head,
            torch.ones(1, 5),
            lambda part: Labels(q[part], torch.zeros(len(q[part])), torch.ones(len(q[part]))),
        )
        (found,) = torch.autograd.grad(loss, hidden)
        return found

    torch.testing.assert_close(gradient(head), gradient(head.requires_grad_()))


def chain_terms(
    target: Teacher, head: Eagle3Head, tokens: Tensor, start: int, steps: int
) -> list[tuple[float, bool, int, int]]:
    """Per step: KL(target || head), whether the row counts, and both's likeliest target ids."""
    drafted = head.to_target(torch.arange(head.config.draft_vocab_size)).tolist()
    states = target.model(input_ids=tokens[None], output_hidden_states=True)
    features = torch.cat([states.hidden_states[tap][0] for tap in head.config.taps], -1)
    logits, _ = as_drafting(head, features, tokens, start, steps)
    terms = []
    for k in range(steps):
        scores = states.logits[0, start + 1 + k]
        p, q = scores[drafted].softmax(0), logits[k].softmax(0)
        gap = sum(a * math.log(a / b) for a, b in zip(p.tolist(), q.tolist(), strict=True))
        best = int(scores.argmax())
        terms.append((gap, best in drafted, best, drafted[int(logits[k].argmax())]))
    return terms


@pytest.mark.parametrize("drafted", [EVERY_OTHER, list(range(40))], ids=["half", "whole"])
@torch.no_grad()
def test_the_loss_is_the_decaying_mean_over_all_chains(drafted: list[int]) -> None:
    target = teacher()
    head = random_head(target, drafted)
    rows = text(2, 8)
    found = HeadLoss(head, target, STEPS)(rows[:, :-1], rows[:, 1:], 0)
    sums, counts, skipped = [0.0] * STEPS, [0] * STEPS, 0
    for tokens in rows:
        for start in range(7):
            steps = min(STEPS, 7 - start)
            for k, (gap, counts_in, _, _) in enumerate(
                chain_terms(target, head, tokens, start, steps)
            ):
                sums[k] += gap * counts_in
                counts[k] += 1
                skipped += not counts_in
    assert counts == [14, 12, 10]
    assert 0 <= skipped < sum(counts)
    assert bool(skipped) == (drafted == EVERY_OTHER)
    means = [a / b for a, b in zip(sums, counts, strict=True)]
    expected = (means[0] + 0.8 * means[1] + 0.64 * means[2]) / 2.44
    assert found.item() == pytest.approx(expected, rel=1e-4)


def test_the_loss_reaches_every_parameter_of_the_head_and_none_of_the_target() -> None:
    target = teacher()
    head = random_head(target, EVERY_OTHER)
    rows = text(2, 8)
    found = HeadLoss(head, target, STEPS)(rows[:, :-1], rows[:, 1:], 0)
    assert all(slope.abs().max() > 0 for slope in torch.autograd.grad(found, [*head.parameters()]))
    assert not any(parameter.requires_grad for parameter in target.model.parameters())


def test_mixed_precision_changes_rounding_only() -> None:
    target = teacher()
    head = random_head(target, EVERY_OTHER)
    rows = text(4, 33)
    exact, mixed = (
        HeadLoss(head, target, STEPS, mixed)(rows[:, :-1], rows[:, 1:], 0)
        for mixed in (False, True)
    )
    assert mixed.dtype == torch.float32
    assert mixed.item() != exact.item()
    assert mixed.item() == pytest.approx(exact.item(), rel=0.05)


@torch.no_grad()
def test_acceptance_counts_chains() -> None:
    # So few tokens that guesses are often right.
    target = teacher(5)
    head = random_head(target, [0, 1, 3], seed=4)
    # One row of held-out text, shorter than the usual ones.
    tokens = text(1, 60)[0] % 5
    stream = tokens.numpy().astype(np.uint16)
    found = drafted_chains(head, target, STEPS, Domain("a", stream, stream)).acceptance()
    chains = [chain_terms(target, head, tokens, i, STEPS) for i in range(57)]
    assert found.chains == 57
    for k in range(STEPS):
        nats = sum(chain[k][0] * chain[k][1] for chain in chains) / 57
        right = sum(chain[k][2] == chain[k][3] for chain in chains) / 57
        kept = sum(all(t[2] == t[3] for t in chain[: k + 1]) for chain in chains) / 57
        assert found.nats_per_token[k] == pytest.approx(nats, abs=2e-3)
        assert found.greedy[k] == pytest.approx(right, abs=1e-4)
        assert found.accepted[k] == pytest.approx(kept, abs=1e-4)
    assert found.accepted_tokens == pytest.approx(sum(found.accepted), abs=2e-4)
    assert found.accepted[0] == found.greedy[0]
    assert 0.0 < found.accepted[2] < found.greedy[2]


@torch.no_grad()
def test_acceptance_of_some_chains() -> None:
    target = teacher(5)
    head = random_head(target, [0, 1, 3], seed=4)
    stream = text(1, 60)[0].numpy().astype(np.uint16) % 5
    chains = drafted_chains(head, target, STEPS, Domain("a", stream, stream))
    roots = torch.zeros((1, 60), dtype=torch.bool)
    roots[0, [0, 3, 9, 59]] = True  # the first and the last are no roots
    found = chains.acceptance(roots)
    assert found.chains == 2
    assert found.greedy == chains.hits[0, [2, 8]].double().mean(0).tolist()
    assert chains.acceptance(~roots).chains == 55


@torch.no_grad()
def test_text_too_short_for_a_chain_gives_none() -> None:
    target = teacher()
    stream = np.arange(STEPS, dtype=np.uint16)
    head = random_head(target, EVERY_OTHER)
    found = drafted_chains(head, target, STEPS, Domain("a", stream, stream)).acceptance()
    assert (found.chains, found.accepted_tokens) == (0, 0.0)
