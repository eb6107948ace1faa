"""The loss of text against the one that PyTorch computes on all logits at once."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from draftwood.lab.train import loss as losses
from draftwood.lab.train.text_model import text_loss

# Several blocks of the fewest rows, the last one shorter.
ROWS, WIDTH, VOCABULARY = 150, 12, 50


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> tuple[Tensor, Tensor, Tensor]:
    monkeypatch.setattr(losses, "_CPU_BLOCK", 1)
    torch.manual_seed(3)
    hidden = torch.randn(ROWS, WIDTH, requires_grad=True)
    head = torch.randn(VOCABULARY, WIDTH, requires_grad=True)
    return hidden, head, torch.randint(VOCABULARY, (ROWS,))


@pytest.mark.parametrize("share", [None, 0.0, 0.4, 1.0])
def test_the_loss_mixes_cross_entropy_and_divergence_from_a_teacher(
    case: tuple[Tensor, Tensor, Tensor], share: float | None
) -> None:
    hidden, head, targets = case
    logits = hidden @ head.T
    expected = functional.cross_entropy(logits, targets)
    if share is None:
        found = text_loss(hidden, head, targets)
    else:
        states, matrix = torch.randn(ROWS, 7), torch.randn(VOCABULARY, 7)
        found = text_loss(hidden, head, targets, (states, matrix), share)
        divergence = functional.kl_div(
            logits.log_softmax(-1), (states @ matrix.T).softmax(-1), reduction="batchmean"
        )
        expected = (1 - share) * expected + share * divergence
    torch.testing.assert_close(found, expected)
    slopes = [torch.autograd.grad(2 * loss, (hidden, head)) for loss in (found, expected)]
    for ours, theirs in zip(*slopes, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_student_equal_to_its_teacher_has_nothing_to_learn(
    case: tuple[Tensor, Tensor, Tensor],
) -> None:
    hidden, head, targets = case
    loss = text_loss(hidden, head, targets, (hidden, head), 1.0)
    assert abs(loss.item()) < 1e-6
    assert all(slope.abs().max() < 1e-6 for slope in torch.autograd.grad(loss, (hidden, head)))
