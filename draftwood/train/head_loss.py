"""What an EAGLE-3 head is trained for: to say, at every step of a chain, what the target would say.

Knows a head, its target and their texts; refuses to know the loop that makes the loss small.

Source: Li et al., *EAGLE-3* (2025), section 3.2: cross-entropy to the target's distribution at
temperature one, each step weighing 0.8 of the one before. Where the head cannot draft all tokens,
the target's distribution is restricted to those it can and renormalised, and rows whose likeliest
token it cannot draft teach nothing, as in the paper's code.

Deviations: the target reads the corpus' own text, where the paper's data are answers that the
target wrote; the labels' entropy, a constant, is subtracted, so that zero is the best there is; the
steps' mean is taken instead of their sum, which the optimisers used here do not tell apart.
"""

import torch
from torch import Tensor
from torch.nn import functional

from draftwood.eagle.head import Eagle3Head
from draftwood.train.eagle3 import unroll
from draftwood.train.loss import chain_loss
from draftwood.train.teacher import Teacher

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

    A :class:`draftwood.train.trainer.Loss`.

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
        """See :class:`draftwood.train.trainer.Loss`; rows have one token per step, or more."""
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
