"""transformers' speculative decoding: ``generate`` with ``assistant_model``.

The assistant drafts a chain and stops where its confidence is below 0.4, transformers' default,
which is adapted within a call if scikit-learn is installed. Prompts are decoded one at a time.

The assistant's generation config is replaced like the target's. Vocabularies of equal size are
taken to be the same; else transformers gets both tokenizers and translates drafts through text. The
embedded draft model is refused for a target with another vocabulary.
"""

from dataclasses import dataclass
from typing import Any

from transformers import GenerationConfig

from draftwood import models
from draftwood.engine.draft_dtype import load_draft
from draftwood.errors import DraftwoodError
from draftwood.lab.bench.generating import Generate
from draftwood.models import Loaded
from draftwood.protocols import Part, setting


@dataclass(frozen=True)
class HuggingFaceAssistant(Part):
    """Settings of assisted generation; the default of ``tokens`` is transformers'."""

    draft: str = setting(
        "embedded-draft", "'embedded-draft', a directory or a hub id of a smaller model"
    )
    tokens: int = setting(20, "most tokens drafted a step (num_assistant_tokens)", least=1)

    def enter(self, stock: Loaded) -> Generate:
        """Assisted generation, with an assistant in the dtype that Draftwood chooses for one."""
        drafts = load_draft(self.draft, "auto", stock.model.dtype, stock.model.device)
        drafts.model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
            num_assistant_tokens=self.tokens
        )
        extra = {"assistant_model": drafts.model, **self._tokenizers(stock, drafts)}
        return Generate(stock.model, extra).tried()

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
