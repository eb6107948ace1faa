"""A loss of next-token distributions, computed in blocks of rows.

With 4,096 tokens in the vocabulary, the logits of a batch are larger than the model. They are
computed, differentiated and dropped a few rows at a time.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

# Logits in a block, several of which are in use at once: on a CPU, few enough to stay in its cache;
# elsewhere, enough to make the overhead of a call negligible.
_CPU_BLOCK = 1 << 19
_BLOCK = 1 << 25
_FEWEST_ROWS = 64


class Labels(NamedTuple):
    """Target distributions of some rows.

    Attributes:
        probs: float32 [m, vocabulary].
        offset: float32 [m], added to the cross-entropy. The negative entropy of ``probs`` makes it
            KL(labels || student); the gradient is the same.
        weight: float32 [m], factor on the rows' weights.
    """

    probs: Tensor
    offset: Tensor
    weight: Tensor


class _ChunkedLoss(torch.autograd.Function):
    """Computes the gradients in the forward pass: d loss / d logits = p - labels."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        head: Tensor,
        weights: Tensor,
        labels: Callable[[slice], Labels],
    ) -> Tensor:
        matrix = head.to(hidden.dtype)
        hidden_grad = torch.empty_like(hidden)
        head_grad = torch.zeros_like(head) if ctx.needs_input_grad[1] else None
        loss = torch.zeros((), device=hidden.device)
        size = _CPU_BLOCK if hidden.device.type == "cpu" else _BLOCK
        block = max(_FEWEST_ROWS, size // len(head))
        for start in range(0, hidden.shape[1], block):
            part = slice(start, start + block)
            probs, offset, factor = labels(part)
            for student, rows in enumerate(hidden[:, part]):
                weight = weights[student, part] * factor
                logits = (rows @ matrix.T).float()
                norm = logits.logsumexp(1)
                loss += (weight * (offset - (probs * logits).sum(1) + norm)).sum()
                slope = logits.sub_(norm[:, None]).exp_().sub_(probs).mul_(weight[:, None])
                slope = slope.to(hidden.dtype)
                hidden_grad[student, part] = slope @ matrix
                if head_grad is not None:
                    head_grad += (slope.T @ rows).to(head.dtype)
        ctx.save_for_backward(hidden_grad, head_grad)
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        hidden_grad, head_grad = ctx.saved_tensors
        scaled = None if head_grad is None else head_grad * grads[0]
        return hidden_grad * grads[0], scaled, None, None


def chunked_loss(
    hidden: Tensor, head: Tensor, weights: Tensor, labels: Callable[[slice], Labels]
) -> Tensor:
    """Sum of ``weight * (cross-entropy + offset)`` over students and rows, in nats.

    Args:
        hidden: last hidden states of one or more students of the same text, [students, n, d].
        head: output matrix [vocabulary, d], shared by all students.
        weights: float32 [students, n].
        labels: labels of some rows; called once per row, without gradients.
    """
    with torch.autocast(hidden.device.type, enabled=False):
        loss: Tensor = _ChunkedLoss.apply(hidden, head, weights, labels)  # type: ignore[no-untyped-call]
        return loss
