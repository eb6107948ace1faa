"""transformers' own speculative decoding: ``generate`` with ``assistant_model``.

The assistant drafts a chain and stops early where it is not confident: below 0.4, transformers'
default, which it adapts within a call if scikit-learn is installed. One prompt at a time, whatever
the batch.

The assistant's generation config is replaced as the target's is. Vocabularies are transformers'
business: of one size they are taken to be the same, else both tokenizers are handed over and
drafts are translated through text. Only the embedded draft is refused for a target of another
vocabulary, for which it was not made: nobody would decode so.
"""

from dataclasses import dataclass, field
from typing import Any

from transformers import GenerationConfig

from draftwood import models
from draftwood.errors import DraftwoodError
from draftwood.lab.bench.generating import OneByOne
from draftwood.models import Loaded


@dataclass(frozen=True)
class HuggingFaceAssistant:
    """The settings of assisted generation; the default of ``tokens`` is transformers' own."""

    draft: str = field(
        default="embedded-draft",
        metadata={"help": "'embedded-draft', a directory or a hub id of a smaller model"},
    )
    tokens: int = field(
        default=20, metadata={"help": "most tokens drafted a step (num_assistant_tokens)"}
    )

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise DraftwoodError(f"tokens is {self.tokens}: hf-assistant needs at least 1")

    def enter(self, stock: Loaded) -> OneByOne:
        """Assisted generation on the model, with an assistant of the same dtype beside it."""
        dtype = next((n for n, d in models.DTYPES.items() if d == stock.model.dtype), "auto")
        drafts = models.load(self.draft, dtype=dtype, device=str(stock.model.device))
        drafts.model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
            num_assistant_tokens=self.tokens
        )
        extra = {"assistant_model": drafts.model, **self._tokenizers(stock, drafts)}
        return OneByOne(stock.model, extra).tried()

    def _tokenizers(self, stock: Loaded, drafts: Loaded) -> dict[str, Any]:
        size, theirs = _vocab(stock), _vocab(drafts)
        if size == theirs:
            return {}
        if self.draft in models.EMBEDDED:
            raise DraftwoodError(
                f"the assistant {self.draft!r} has {theirs} tokens and the target {size}: name a "
                "smaller model of the target's own family, hf-assistant:draft=PATH"
            )
        return {"tokenizer": stock.tokenizer, "assistant_tokenizer": drafts.tokenizer}


def _vocab(loaded: Loaded) -> int:
    size: int = loaded.model.config.get_text_config().vocab_size
    return size


PEER = HuggingFaceAssistant
