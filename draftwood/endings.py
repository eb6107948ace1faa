"""The token ids that end a model's sequences."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def eos_of(model: Any, tokenizer: "PreTrainedTokenizerBase | None" = None) -> frozenset[int]:
    """All token ids that end a sequence, as the generation config, else the tokenizer, has them."""
    found = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    if found is None and tokenizer is not None:
        found = tokenizer.eos_token_id
    if found is None:
        return frozenset()
    return frozenset([found] if isinstance(found, int) else found)
