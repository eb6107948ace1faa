"""What is inflated to which shape, checked before work is spent."""

from dataclasses import dataclass

from transformers import LlamaForCausalLM, PreTrainedModel

from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.lab.inflate.head import empty_head, source_head
from draftwood.lab.inflate.model import as_llama, check_rotary, shape_of
from draftwood.lab.inflate.shapes import LlamaShape, check_fits


@dataclass(frozen=True, eq=False)
class Plan:
    """A small model that can be inflated.

    Attributes:
        source: the small model.
        head: its EAGLE-3 head, if that is inflated as well.
        small: its shape.
        parameters: weights of the inflated model.
        head_parameters: weights of the inflated head; 0 without.
    """

    source: LlamaForCausalLM
    head: Eagle3Head | None
    small: LlamaShape
    parameters: int
    head_parameters: int


def planned(model: PreTrainedModel, name: str, large: LlamaShape, head: str | None) -> Plan:
    """Check a model and its head.

    Args:
        model: float32.
        name: the model's, for messages.
        large: the shape to come.
        head: a shipped head, a directory or a hub id.

    Raises:
        DraftwoodError: the model or the head cannot be inflated, or not to this shape.
    """
    source = as_llama(model, name)
    small = shape_of(source.config)
    check_fits(small, large)
    check_rotary(source.config, large)
    tied = bool(source.config.tie_word_embeddings)
    own = None if head is None else source_head(head, source)
    return Plan(
        source,
        own,
        small,
        large.parameters(source.config.vocab_size, tied=tied),
        0 if own is None else empty_head(own.config, large).num_parameters(),
    )
