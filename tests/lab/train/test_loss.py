"""The chunked losses against the ones PyTorch computes on all logits at once."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from draftwood.errors import DraftwoodError
from draftwood.lab.train.loss import head_loss

# More rows than one chunk of 512, and not a multiple of it.
ROWS, WIDTH, VOCABULARY = 700, 12, 50


@pytest.fixture
def case() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(3)
    hidden = torch.randn(ROWS, WIDTH, requires_grad=True)
    head = torch.randn(VOCABULARY, WIDTH, requires_grad=True)
    return hidden, head, torch.randint(VOCABULARY, (ROWS,))


def gradients(loss: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, inputs)


def test_head_loss_is_cross_entropy(case: tuple[Tensor, Tensor, Tensor]) -> None:
    hidden, head, targets = case
    found = head_loss(hidden, head, targets)
    expected = functional.cross_entropy(hidden @ head.T, targets)
    torch.testing.assert_close(found, expected)
    for a, b in zip(
        gradients(2 * found, hidden, head), gradients(2 * expected, hidden, head), strict=True
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_distilled_loss_mixes_in_the_teacher(
    case: tuple[Tensor, Tensor, Tensor], share: float
) -> None:
    hidden, head, targets = case
    teacher_hidden, teacher_head = torch.randn(ROWS, 7), torch.randn(VOCABULARY, 7)
    found = head_loss(hidden, head, targets, (teacher_hidden, teacher_head), share)
    logits = hidden @ head.T
    divergence = functional.kl_div(
        logits.log_softmax(-1), (teacher_hidden @ teacher_head.T).softmax(-1), reduction="batchmean"
    )
    expected = (1 - share) * functional.cross_entropy(logits, targets) + share * divergence
    torch.testing.assert_close(found, expected)
    for a, b in zip(gradients(found, hidden, head), gradients(expected, hidden, head), strict=True):
        torch.testing.assert_close(a, b)


def test_a_student_equal_to_its_teacher_has_nothing_to_learn(
    case: tuple[Tensor, Tensor, Tensor],
) -> None:
    hidden, head, targets = case
    loss = head_loss(hidden, head, targets, (hidden, head), 1.0)
    assert abs(loss.item()) < 1e-6
    assert all(g.abs().max() < 1e-6 for g in gradients(loss, hidden, head))


def test_a_share_outside_zero_to_one_is_refused(case: tuple[Tensor, Tensor, Tensor]) -> None:
    hidden, head, targets = case
    with pytest.raises(DraftwoodError, match="0 to 1"):
        head_loss(hidden, head, targets, (hidden, head), 1.5)
