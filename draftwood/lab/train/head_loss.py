"""Training loss of an EAGLE-3 head: its unrolled steps against the target's distributions."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.lab.train.eagle3 import unroll
from draftwood.lab.train.loss import Labels, chunked_loss
from draftwood.lab.train.teacher import TargetStates, Teacher

STEP_DECAY = 0.8
"""Weight of each step of a chain, relative to the step before."""


class DraftLabels:
    """Restricts a target's distributions to a draft vocabulary.

    Args:
        drafted: int64 [Vd], the target's ids of the draft ids.
        vocab_size: V, the target's tokens.
    """

    def __init__(self, drafted: Tensor, vocab_size: int) -> None:
        self.drafted = drafted
        self._draftable = torch.zeros(vocab_size, dtype=torch.bool, device=drafted.device)
        self._draftable[drafted] = True
        self._whole = len(drafted) == vocab_size and bool(
            (drafted == torch.arange(vocab_size, device=drafted.device)).all()
        )

    def of(self, log_probs: Tensor) -> tuple[Tensor, Tensor]:
        """Restrict log-probabilities [n, V] to draft ids.

        Returns:
            Renormalised log-probabilities [n, Vd], and the rows' weights [n]: 0 if the likeliest
            token cannot be drafted, else 1.
        """
        if self._whole:
            return log_probs, log_probs.new_ones(len(log_probs))
        weights = self._draftable[log_probs.argmax(-1)].to(log_probs.dtype)
        return log_probs[:, self.drafted].log_softmax(-1), weights

    def after(self, last: Tensor, teacher: Teacher) -> Callable[[slice], Labels]:
        """The labels of some rows, for :func:`draftwood.lab.train.loss.chunked_loss`.

        Args:
            last: the target's last hidden states [n, Ht], whose next tokens are drafted.
            teacher: the target.
        """

        def of(part: slice) -> Labels:
            log_q, weight = self.of(teacher.log_probs(last[part]))
            q = log_q.exp()
            return Labels(q, (q * log_q).sum(1), weight)

        return of


def head_labels(head: Eagle3Head) -> DraftLabels:
    """The labels of a head."""
    drafted = head.to_target(torch.arange(len(head.d2t), device=head.d2t.device))
    return DraftLabels(drafted, head.config.vocab_size)


def unrolled_loss(
    outputs: Sequence[Tensor],
    output: Tensor,
    reading: TargetStates,
    teacher: Teacher,
    labels: DraftLabels,
) -> Tensor:
    """Weighted mean over steps of ``KL(target || draft)``, in nats per drafted token.

    Args:
        outputs: last hidden states of each step k, [rows, length - k, H]: row i is for the token
            after position i + 1 + k.
        output: output matrix [Vd, H].
        reading: the target's states of the tokens, [rows, length + 1, Ht].
        teacher: the target.
        labels: of the draft vocabulary.
    """
    # With k rows of padding in front, all steps' predictions of a token have the same index.
    padded = [functional.pad(each, (0, 0, k, 0)) for k, each in enumerate(outputs)]
    last = reading.last[:, 1:].flatten(0, 1)
    weights = _weights(len(outputs), *outputs[0].shape[:2]).to(last.device)
    hidden = torch.stack(padded).flatten(1, 2)
    return chunked_loss(hidden, output, weights, labels.after(last, teacher))


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
        self._labels = head_labels(head)
        self._steps = steps
        self._mixed = mixed

    def __call__(self, given: Tensor, wanted: Tensor, step: int) -> Tensor:  # noqa: ARG002
        """See :class:`draftwood.lab.train.trainer.Loss`; rows need at least one token per step."""
        head, mixed = self._head, self._mixed
        tokens = torch.cat([given, wanted[:, -1:]], dim=1)
        reading = self._teacher.read(tokens, tuple(head.config.taps), mixed)
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=mixed):
            outputs = unroll(head, reading.features, tokens, self._steps)
            hidden = [head.norm(each) for each in outputs]
        if mixed:
            hidden = [each.bfloat16() for each in hidden]
        return unrolled_loss(hidden, head.lm_head.weight, reading, self._teacher, self._labels)


def _weights(steps: int, rows: int, length: int) -> Tensor:
    """Weights [steps, rows * length] that are 0 in the padding and sum to 1."""
    shares = STEP_DECAY ** torch.arange(steps)
    shares = shares / shares.sum()
    real = torch.arange(length) >= torch.arange(steps)[:, None]
    per_row = shares / (rows * (length - torch.arange(steps)))
    return (real * per_row[:, None]).repeat(1, rows)
