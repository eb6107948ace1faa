"""Small Llama models and their training loss."""

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from draftwood.lab.train.loss import head_loss
from draftwood.lab.train.recipe import ModelShape, TrainingRecipe


def new_model(shape: ModelShape, vocab_size: int, seed: int) -> LlamaForCausalLM:
    """Initialise a float32 model; its residual branches start at zero."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(shape.config(vocab_size))
    zero_branches(model)
    return model


def zero_branches(model: nn.Module) -> None:
    """Set the output projections of attention and feed-forward layers to zero."""
    for name, parameter in model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            torch.nn.init.zeros_(parameter)


def last_hidden(model: LlamaForCausalLM, tokens: Tensor, mixed: bool) -> Tensor:
    """The last hidden states [rows * length, d] of ``tokens`` [rows, length].

    If ``mixed``, matrix products run in bfloat16 and the states are bfloat16.
    """
    with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=mixed):
        hidden: Tensor = model.model(input_ids=tokens, use_cache=False).last_hidden_state
    return (hidden.bfloat16() if mixed else hidden).flatten(0, 1)


class TextLoss:
    """Cross-entropy of the next token, mixed with a teacher's distribution if there is a teacher.

    Implements :class:`draftwood.lab.train.trainer.Loss`.

    Args:
        model: the model that is trained.
        recipe: weight of the teacher, and the first update with it.
        teacher: the model to distil from.
        mixed: whether matrix products run in bfloat16.
    """

    def __init__(
        self,
        model: LlamaForCausalLM,
        recipe: TrainingRecipe,
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
        return head_loss(
            hidden,
            head,
            wanted.flatten(),
            (teacher, self._teacher.lm_head.weight),
            self._recipe.teacher_share,
        )
