"""The language models that are trained here, and what they are trained for: text, and a teacher.

Knows Llama models; refuses to know the loop that makes the loss small.
"""

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from draftwood.lab.train.loss import distilled_head_loss, head_loss
from draftwood.lab.train.recipe import Recipe, Shape


def new_model(shape: Shape, vocab_size: int, seed: int) -> LlamaForCausalLM:
    """Build a model [float32] whose residual branches start at zero."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(shape.config(vocab_size))
    zero_branches(model)
    return model


def zero_branches(model: nn.Module) -> None:
    """Set to zero what attention and feed-forward parts add to the residual stream."""
    for name, parameter in model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            torch.nn.init.zeros_(parameter)


def last_hidden(model: LlamaForCausalLM, tokens: Tensor, mixed: bool) -> Tensor:
    """Return the last hidden states [rows * length, d] of ``tokens`` [rows, length].

    They are bfloat16 in ``mixed`` precision, where matrix products run in bfloat16
    and the weights stay as they are; otherwise of the weights' type.
    """
    with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=mixed):
        hidden: Tensor = model.model(input_ids=tokens, use_cache=False).last_hidden_state
    return (hidden.bfloat16() if mixed else hidden).flatten(0, 1)


class TextLoss:
    """Cross-entropy of the next token, with a teacher's distribution mixed in where told.

    A :class:`draftwood.lab.train.trainer.Loss`.

    Args:
        model: the model that is trained.
        recipe: says how much the teacher has to say, and from when on.
        teacher: the model to distil from, where the recipe has a teacher's share.
        mixed: whether matrix products run in bfloat16; decides speed, and rounding.
    """

    def __init__(
        self,
        model: LlamaForCausalLM,
        recipe: Recipe,
        teacher: LlamaForCausalLM | None = None,
        mixed: bool = False,
    ) -> None:
        self._model = model
        self._recipe = recipe
        self._teacher = teacher
        self._mixed = mixed

    def __call__(self, given: Tensor, wanted: Tensor, step: int) -> Tensor:
        """See :class:`draftwood.lab.train.trainer.Loss`."""
        hidden = last_hidden(self._model, given, self._mixed)
        head = self._model.lm_head.weight
        if self._teacher is None or not self._recipe.taught(step):
            return head_loss(hidden, head, wanted.flatten())
        with torch.no_grad():
            teacher = last_hidden(self._teacher, given, self._mixed)
        return distilled_head_loss(
            hidden,
            head,
            wanted.flatten(),
            teacher,
            self._teacher.lm_head.weight,
            self._recipe.teacher_share,
        )
