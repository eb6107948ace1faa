"""Training loss of Medusa heads: each against the target's distribution of its token.

Source: Cai et al., *Medusa* (2024), section 2.2.1 (the target is frozen) and 2.3.2
(self-distillation): labels are the target's distributions, not the text's tokens.
"""

import torch
from torch import Tensor

from draftwood.drafters.medusa.heads import MedusaHeads
from draftwood.lab.train.head_loss import DraftLabels, unrolled_loss
from draftwood.lab.train.teacher import Teacher


class MedusaLoss:
    """Weighted mean over heads of ``KL(target || head)``, in nats per drafted token.

    Implements :class:`draftwood.lab.train.trainer.Loss`.

    Args:
        heads: that are trained, with one output for all.
        teacher: the target.
        labels: of their vocabulary.
        mixed: whether matrix products run in bfloat16.
    """

    def __init__(
        self, heads: MedusaHeads, teacher: Teacher, labels: DraftLabels, mixed: bool = False
    ) -> None:
        self._heads, self._teacher, self._labels, self._mixed = heads, teacher, labels, mixed

    def __call__(self, given: Tensor, wanted: Tensor, step: int) -> Tensor:  # noqa: ARG002
        """See :class:`draftwood.lab.train.trainer.Loss`; rows need a token per head."""
        mixed = self._mixed
        tokens = torch.cat([given, wanted[:, -1:]], dim=1)
        reading = self._teacher.read(tokens, (), mixed)
        states = reading.last[:, :-1].float()
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=mixed):
            hidden = self._heads.hidden(states.flatten(0, 1))
            found = hidden.view(*states.shape[:2], *hidden.shape[1:])
        if mixed:
            found = found.bfloat16()
        length = states.shape[1]
        # Head k at position i is for the token after position i + 1 + k.
        outputs = [found[:, : length - k, k] for k in range(found.shape[2])]
        output: Tensor = self._heads.lm_heads[0].weight  # type: ignore[assignment]
        return unrolled_loss(outputs, output, reading, self._teacher, self._labels)
