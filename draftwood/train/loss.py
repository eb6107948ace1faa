"""Loss of a language model head, without ever holding all the logits.

Knows hidden states, a head matrix and what to aim at; refuses to know the model.
With 4,096 tokens in the vocabulary the logits of one batch are larger than the
whole model, so they are made, differentiated and dropped a few rows at a time.
"""

from typing import Any

import torch
from torch import Tensor

from draftwood.errors import DraftwoodError

_ROWS = 512


class _HeadLoss(torch.autograd.Function):
    """Both gradients are ready after the forward pass: d loss / d logits = p - aim."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        head: Tensor,
        targets: Tensor,
        teacher_hidden: Tensor | None,
        teacher_head: Tensor | None,
        share: float,
    ) -> Tensor:
        count = hidden.shape[0]
        matrix = head.to(hidden.dtype)
        hidden_grad = torch.empty_like(hidden)
        head_grad = torch.zeros_like(head)
        loss = torch.zeros((), device=hidden.device)
        for start in range(0, count, _ROWS):
            rows = hidden[start : start + _ROWS]
            aims = targets[start : start + _ROWS, None]
            log_p = (rows @ matrix.T).float()
            log_p.sub_(log_p.logsumexp(1, keepdim=True))
            loss -= (1.0 - share) * log_p.gather(1, aims).sum()
            if teacher_hidden is None or teacher_head is None:
                slope = log_p.exp_()
            else:
                teacher = teacher_hidden[start : start + _ROWS]
                log_q = (teacher @ teacher_head.to(teacher.dtype).T).float()
                log_q.sub_(log_q.logsumexp(1, keepdim=True))
                q = log_q.exp()
                loss += share * (q * (log_q - log_p)).sum()
                slope = log_p.exp_().sub_(q, alpha=share)
            slope.scatter_add_(1, aims, slope.new_full(aims.shape, share - 1.0))
            slope = slope.to(hidden.dtype)
            hidden_grad[start : start + _ROWS] = slope @ matrix
            head_grad += (slope.T @ rows).to(head.dtype)
        ctx.save_for_backward(hidden_grad, head_grad)
        ctx.count = count
        return loss / count

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        hidden_grad, head_grad = ctx.saved_tensors
        scale = grads[0] / ctx.count
        return hidden_grad * scale, head_grad * scale, None, None, None, None


def head_loss(hidden: Tensor, head: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy in nats per token, a scalar.

    Args:
        hidden: last hidden states [n, d].
        head: output matrix [vocabulary, d].
        targets: next tokens [n], int64.
    """
    with torch.autocast(hidden.device.type, enabled=False):
        return _apply(hidden, head, targets, None, None, 0.0)


def distilled_head_loss(
    hidden: Tensor,
    head: Tensor,
    targets: Tensor,
    teacher_hidden: Tensor,
    teacher_head: Tensor,
    share: float,
) -> Tensor:
    """``(1 - share) * cross-entropy + share * KL(teacher || student)``, mean in nats per token.

    Args:
        hidden: the student's last hidden states [n, d].
        head: the student's output matrix [vocabulary, d].
        targets: next tokens of the text [n], int64.
        teacher_hidden: the teacher's last hidden states [n, e]; no gradient flows to them.
        teacher_head: the teacher's output matrix [vocabulary, e].
        share: weight of the teacher, 0 to 1.

    Source: G. Hinton et al., "Distilling the Knowledge in a Neural Network", 2015,
    at temperature one, since acceptance is decided at temperature one.
    """
    if not 0.0 <= share <= 1.0:
        raise DraftwoodError(f"The teacher's share must lie in 0 to 1, got {share}.")
    with torch.autocast(hidden.device.type, enabled=False):
        return _apply(hidden, head, targets, teacher_hidden.detach(), teacher_head.detach(), share)


def _apply(
    hidden: Tensor,
    head: Tensor,
    targets: Tensor,
    teacher_hidden: Tensor | None,
    teacher_head: Tensor | None,
    share: float,
) -> Tensor:
    loss: Tensor = _HeadLoss.apply(  # type: ignore[no-untyped-call]
        hidden, head, targets, teacher_hidden, teacher_head, share
    )
    return loss
