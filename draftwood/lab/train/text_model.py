"""Small models and their training loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from draftwood.lab.train.loss import Labels, chunked_loss
from draftwood.lab.train.recipe import ModelShape, TrainingRecipe

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5ForCausalLM

TextModel: TypeAlias = "LlamaForCausalLM | Qwen3_5ForCausalLM"
"""A model that is trained on text; see :class:`ModelShape`."""


def new_model(shape: ModelShape, vocab_size: int, seed: int) -> TextModel:
    """Initialise a float32 model; its residual branches start at zero.

    Raises:
        DraftwoodError: see :meth:`ModelShape.config`.
    """
    torch.manual_seed(seed)
    made: Any = AutoModelForCausalLM
    model: TextModel = made.from_config(shape.config(vocab_size), dtype=torch.float32)
    zero_branches(model)
    return model


def zero_branches(model: nn.Module) -> None:
    """Set the output projections of attention, recurrent and feed-forward layers to zero."""
    for name, parameter in model.named_parameters():
        if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
            torch.nn.init.zeros_(parameter)


def last_hidden(model: TextModel, tokens: Tensor, mixed: bool) -> Tensor:
    """The last hidden states [rows * length, d] of ``tokens`` [rows, length].

    If ``mixed``, matrix products run in bfloat16 and the states are bfloat16.
    """
    with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=mixed):
        hidden: Tensor = model.model(input_ids=tokens, use_cache=False).last_hidden_state
    return (hidden.bfloat16() if mixed else hidden).flatten(0, 1)


def text_loss(
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
        share: weight of the teacher, 0 to 1; without a teacher, 0.
    """
    count = len(targets)

    def labels(part: slice) -> Labels:
        wanted = targets[part]
        weight = torch.ones(len(wanted), device=hidden.device)
        if teacher is None:
            probs, offset = weight.new_zeros(len(wanted), len(head)), torch.zeros_like(weight)
        else:
            states, matrix = teacher[0][part], teacher[1]
            log_q = (states @ matrix.to(states.dtype).T).float().log_softmax(1)
            probs = log_q.exp().mul_(share)
            offset = (probs * log_q).sum(1)
        probs[torch.arange(len(wanted), device=hidden.device), wanted] += 1.0 - share
        return Labels(probs, offset, weight)

    weights = torch.full((1, count), 1.0 / count, device=hidden.device)
    return chunked_loss(hidden[None], head, weights, labels)


@dataclass(frozen=True, eq=False)
class TextLoss:
    """Cross-entropy of the next token, mixed with a teacher's distribution if there is a teacher.

    Implements :class:`draftwood.lab.train.trainer.Loss`.

    Attributes:
        model: the model that is trained.
        recipe: weight of the teacher, and the first update with it.
        teacher: the model to distil from.
        mixed: whether matrix products run in bfloat16.
    """

    model: TextModel
    recipe: TrainingRecipe
    teacher: TextModel | None = None
    mixed: bool = False

    def __call__(self, given: Tensor, wanted: Tensor, step: int) -> Tensor:
        """See :class:`draftwood.lab.train.trainer.Loss`."""
        hidden = last_hidden(self.model, given, self.mixed)
        head = self.model.lm_head.weight
        if self.teacher is None or not self.recipe.taught(step):
            return text_loss(hidden, head, wanted.flatten())
        with torch.no_grad():
            teacher = last_hidden(self.teacher, given, self.mixed)
        return text_loss(
            hidden,
            head,
            wanted.flatten(),
            (teacher, self.teacher.lm_head.weight),
            self.recipe.teacher_share,
        )
