"""Losses of next-token distributions, computed in blocks of rows.

With 4,096 tokens in the vocabulary, the logits of a batch are larger than the model. They are
computed, differentiated and dropped a few rows at a time.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.errors import DraftwoodError
from draftwood.lab.train.eagle3 import unroll
from draftwood.lab.train.teacher import Teacher

STEP_DECAY = 0.8
"""Weight of each step of a chain, relative to the step before."""

_ROWS = 512
# Logits in a block, several of which are in use at once: on a CPU, few enough to stay in its cache;
# elsewhere, enough to make the overhead of a call negligible.
_CPU_BLOCK = 1 << 19
_BLOCK = 1 << 25
_FEWEST_ROWS = 64

SoftLabels = Callable[[slice], tuple[Tensor, Tensor]]
"""By rows: target log-probabilities, float32 [m, vocabulary], and the rows' weights [m]."""


class _HeadLoss(torch.autograd.Function):
    """Computes the gradients in the forward pass: d loss / d logits = p - labels."""

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
            labels = targets[start : start + _ROWS, None]
            log_p = (rows @ matrix.T).float()
            log_p.sub_(log_p.logsumexp(1, keepdim=True))
            loss -= (1.0 - share) * log_p.gather(1, labels).sum()
            if teacher_hidden is None or teacher_head is None:
                slope = log_p.exp_()
            else:
                teacher = teacher_hidden[start : start + _ROWS]
                log_q = (teacher @ teacher_head.to(teacher.dtype).T).float()
                log_q.sub_(log_q.logsumexp(1, keepdim=True))
                q = log_q.exp()
                loss += share * (q * (log_q - log_p)).sum()
                slope = log_p.exp_().sub_(q, alpha=share)
            slope.scatter_add_(1, labels, slope.new_full(labels.shape, share - 1.0))
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


def head_loss(
    hidden: Tensor,
    head: Tensor,
    targets: Tensor,
    teacher: tuple[Tensor, Tensor] | None = None,
    share: float = 0.0,
) -> Tensor:
    """``(1 - share) * cross-entropy + share * KL(teacher || student)``, mean in nats per token.

    Source: G. Hinton et al., "Distilling the Knowledge in a Neural Network", 2015, at temperature
    one, at which acceptance is decided.

    Args:
        hidden: the student's last hidden states [n, d].
        head: the student's output matrix [vocabulary, d].
        targets: next tokens of the text, int64 [n].
        teacher: the teacher's last hidden states [n, e] and output matrix [vocabulary, e]; no
            gradient flows to them.
        share: weight of the teacher, 0 to 1.
    """
    if not 0.0 <= share <= 1.0:
        raise DraftwoodError(f"The teacher's share must lie in 0 to 1, got {share}.")
    states, matrix = (None, None) if teacher is None else (part.detach() for part in teacher)
    with torch.autocast(hidden.device.type, enabled=False):
        loss: Tensor = _HeadLoss.apply(  # type: ignore[no-untyped-call]
            hidden, head, targets, states, matrix, share
        )
        return loss


class _ChainLoss(torch.autograd.Function):
    """Like `_HeadLoss`, for several students of the same text that share their labels."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, head: Tensor, weights: Tensor, labels: SoftLabels
    ) -> Tensor:
        matrix = head.to(hidden.dtype)
        hidden_grad = torch.empty_like(hidden)
        head_grad = torch.zeros_like(head)
        loss = torch.zeros((), device=hidden.device)
        size = _CPU_BLOCK if hidden.device.type == "cpu" else _BLOCK
        block = max(_FEWEST_ROWS, size // len(head))
        for start in range(0, hidden.shape[1], block):
            part = slice(start, start + block)
            log_q, factor = labels(part)
            q = log_q.exp()
            negative_entropy = (q * log_q).sum(1)
            for student, rows in enumerate(hidden[:, part]):
                weight = weights[student, part] * factor
                logits = (rows @ matrix.T).float()
                norm = logits.logsumexp(1)
                loss += (weight * (negative_entropy - (q * logits).sum(1) + norm)).sum()
                slope = logits.sub_(norm[:, None]).exp_().sub_(q).mul_(weight[:, None])
                slope = slope.to(hidden.dtype)
                hidden_grad[student, part] = slope @ matrix
                head_grad += (slope.T @ rows).to(head.dtype)
        ctx.save_for_backward(hidden_grad, head_grad)
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        hidden_grad, head_grad = ctx.saved_tensors
        return hidden_grad * grads[0], head_grad * grads[0], None, None


def chain_loss(hidden: Tensor, head: Tensor, weights: Tensor, labels: SoftLabels) -> Tensor:
    """Sum of ``weight * KL(labels || student)`` over students and rows, in nats.

    It differs from the cross-entropy with soft labels by the labels' entropy; the gradient is the
    same.

    Args:
        hidden: last hidden states [students, n, d].
        head: output matrix [vocabulary, d], shared by all students.
        weights: float32 [students, n].
        labels: log-probabilities of some rows, and factors on their weights; called once per row,
            without gradients.
    """
    with torch.autocast(hidden.device.type, enabled=False):
        loss: Tensor = _ChainLoss.apply(hidden, head, weights, labels)  # type: ignore[no-untyped-call]
        return loss


class DraftLabels:
    """Restricts a target's distributions to the draft vocabulary of ``head``."""

    def __init__(self, head: Eagle3Head) -> None:
        self._drafted = head.to_target(torch.arange(len(head.d2t), device=head.d2t.device))
        self._draftable = head.t2d
        self._whole = bool(head.t2d.all())

    def of(self, log_probs: Tensor) -> tuple[Tensor, Tensor]:
        """Restrict log-probabilities [n, V] to draft ids.

        Returns:
            Renormalised log-probabilities [n, Vd], and the rows' weights [n]: 0 if the likeliest
            token cannot be drafted, else 1.
        """
        if self._whole:
            return log_probs, log_probs.new_ones(len(log_probs))
        weights = self._draftable[log_probs.argmax(-1)].to(log_probs.dtype)
        return log_probs[:, self._drafted].log_softmax(-1), weights


class HeadLoss:
    """Weighted mean over steps of ``KL(target || head)``, in nats per drafted token.

    Implements :class:`draftwood.lab.train.trainer.Loss`.

    Args:
        head: the head that is trained.
        teacher: the target.
        steps: number of unrolled steps.
        mixed: whether matrix products run in bfloat16.
    """

    def __init__(self, head: Eagle3Head, teacher: Teacher, steps: int, mixed: bool = False) -> None:
        self._head = head
        self._teacher = teacher
        self._labels = DraftLabels(head)
        self._steps = steps
        self._mixed = mixed

    def __call__(self, given: Tensor, wanted: Tensor, step: int) -> Tensor:  # noqa: ARG002
        """See :class:`draftwood.lab.train.trainer.Loss`; rows need at least one token per step."""
        head, mixed = self._head, self._mixed
        tokens = torch.cat([given, wanted[:, -1:]], dim=1)
        reading = self._teacher.read(tokens, tuple(head.config.taps), mixed)
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=mixed):
            outputs = unroll(head, reading.features, tokens, self._steps)
            # Row i of step k predicts the token after position i + 1 + k. With k rows of padding in
            # front, all steps' predictions of a token have the same index.
            hidden = torch.stack(
                [functional.pad(head.norm(out), (0, 0, k, 0)) for k, out in enumerate(outputs)]
            ).flatten(1, 2)
        last = reading.last[:, 1:].flatten(0, 1)
        return chain_loss(
            hidden.bfloat16() if mixed else hidden,
            head.lm_head.weight,
            _weights(self._steps, *given.shape).to(tokens.device),
            lambda part: self._labels.of(self._teacher.log_probs(last[part])),
        )


def _weights(steps: int, rows: int, length: int) -> Tensor:
    """Weights [steps, rows * length] that are 0 in the padding and sum to 1."""
    shares = STEP_DECAY ** torch.arange(steps)
    shares = shares / shares.sum()
    real = torch.arange(length) >= torch.arange(steps)[:, None]
    per_row = shares / (rows * (length - torch.arange(steps)))
    return (real * per_row[:, None]).repeat(1, rows)
