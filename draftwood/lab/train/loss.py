"""Loss of a language model head, without ever holding all the logits.

Knows hidden states, a head matrix and what to aim at; refuses to know the model.
With 4,096 tokens in the vocabulary the logits of one batch are larger than the
whole model, so they are made, differentiated and dropped a few rows at a time.
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

_ROWS = 512
# Logits in a block, several of which are in use at a time: on a CPU, so few that they stay in its
# cache from one operation to the next; elsewhere, so many that every operation is worth its call.
_CPU_BLOCK = 1 << 19
_BLOCK = 1 << 25
_FEWEST_ROWS = 64

Aim = Callable[[slice], tuple[Tensor, Tensor]]
"""By rows: log-probabilities [m, vocabulary] in float32 to aim at, and what each row counts [m]."""


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


class _ChainLoss(torch.autograd.Function):
    """As `_HeadLoss`, for several students of the same text, who share what they aim at."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, weights: Tensor, aim: Aim) -> Tensor:
        matrix = head.to(hidden.dtype)
        hidden_grad = torch.empty_like(hidden)
        head_grad = torch.zeros_like(head)
        loss = torch.zeros((), device=hidden.device)
        size = _CPU_BLOCK if hidden.device.type == "cpu" else _BLOCK
        block = max(_FEWEST_ROWS, size // len(head))
        for start in range(0, hidden.shape[1], block):
            part = slice(start, start + block)
            log_q, worth = aim(part)
            q = log_q.exp()
            unsure = (q * log_q).sum(1)
            for student, rows in enumerate(hidden[:, part]):
                weight = weights[student, part] * worth
                logits = (rows @ matrix.T).float()
                norm = logits.logsumexp(1)
                loss += (weight * (unsure - (q * logits).sum(1) + norm)).sum()
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


def chain_loss(hidden: Tensor, head: Tensor, weights: Tensor, aim: Aim) -> Tensor:
    """The sum of ``weight * KL(aim || student)`` over students and rows, in nats.

    Its gradient is that of the cross-entropy to the same soft labels, from which it
    differs by the labels' entropy: at zero, there is nothing left to learn.

    Args:
        hidden: last hidden states [students, n, d].
        head: output matrix [vocabulary, d], the same for all.
        weights: float32 [students, n].
        aim: gives the rows' log-probabilities, and a factor on their weights; called once per
            row, without gradients.
    """
    with torch.autocast(hidden.device.type, enabled=False):
        loss: Tensor = _ChainLoss.apply(hidden, head, weights, aim)  # type: ignore[no-untyped-call]
        return loss


STEP_DECAY = 0.8


class Labels:
    """A target's distributions as far as ``head`` can draft from them."""

    def __init__(self, head: Eagle3Head) -> None:
        self._drafted = head.to_target(torch.arange(len(head.d2t), device=head.d2t.device))
        self._draftable = head.t2d
        self._whole = bool(head.t2d.all())

    def of(self, log_probs: Tensor) -> tuple[Tensor, Tensor]:
        """Restrict log-probabilities [n, V] to draft ids.

        Returns:
            They, renormalised, [n, Vd], and what each row counts [n]: 0 where the likeliest token
            cannot be drafted, else 1.
        """
        if self._whole:
            return log_probs, log_probs.new_ones(len(log_probs))
        worth = self._draftable[log_probs.argmax(-1)].to(log_probs.dtype)
        return log_probs[:, self._drafted].log_softmax(-1), worth


class HeadLoss:
    """The weighted mean over steps of ``KL(target || head)``, in nats per drafted token.

    A :class:`draftwood.lab.train.trainer.Loss`.

    Args:
        head: what is trained.
        teacher: the target.
        steps: how many steps are unrolled.
        mixed: whether matrix products run in bfloat16; decides speed, and rounding.
    """

    def __init__(self, head: Eagle3Head, teacher: Teacher, steps: int, mixed: bool = False) -> None:
        self._head = head
        self._teacher = teacher
        self._labels = Labels(head)
        self._steps = steps
        self._mixed = mixed

    def __call__(self, given: Tensor, wanted: Tensor, step: int) -> Tensor:  # noqa: ARG002
        """See :class:`draftwood.lab.train.trainer.Loss`; rows have one token per step, or more."""
        head, mixed = self._head, self._mixed
        tokens = torch.cat([given, wanted[:, -1:]], dim=1)
        reading = self._teacher.read(tokens, tuple(head.config.taps), mixed)
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=mixed):
            outputs = unroll(head, reading.features, tokens, self._steps)
            # Row i of step k predicts what follows position i + 1 + k: with k rows of padding
            # before, all steps' predictions of one token stand in one place.
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
    """What each place counts, [steps, rows * length]: nothing in the padding, one in all."""
    shares = STEP_DECAY ** torch.arange(steps)
    shares = shares / shares.sum()
    places = torch.arange(length) >= torch.arange(steps)[:, None]
    per_place = shares / (rows * (length - torch.arange(steps)))
    return (places * per_place[:, None]).repeat(1, rows)
