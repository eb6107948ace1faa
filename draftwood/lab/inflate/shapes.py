"""Shapes of Llama models, and the check that one fits into another.

The vocabulary is not part of a shape, because inflation keeps the small model's.
"""

from dataclasses import dataclass, fields
from typing import Any

from draftwood.errors import DraftwoodError

CONFIG = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "ffn": "intermediate_size",
}
"""Names of the sizes in transformers' ``LlamaConfig``."""


@dataclass(frozen=True)
class LlamaShape:
    """Sizes of a Llama's layers.

    Raises:
        DraftwoodError: a size is not positive, the query heads are not a multiple of the key-value
            heads, the hidden size is not a multiple of the heads (transformers requires it), or the
            head size is odd.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int

    def __post_init__(self) -> None:
        for field in fields(self):
            size = getattr(self, field.name)
            if size < 1:
                raise DraftwoodError(f"{flag(field.name)} is {size}: give at least 1")
        if self.heads % self.kv_heads:
            raise DraftwoodError(
                f"{self.heads} heads cannot share {self.kv_heads} key-value heads evenly: "
                "give a multiple"
            )
        if self.hidden % self.heads:
            raise DraftwoodError(
                f"--hidden {self.hidden} is not a multiple of --heads {self.heads}, which "
                "transformers requires: give a multiple"
            )
        if self.head_dim % 2:
            raise DraftwoodError(
                f"--head-dim is {self.head_dim}: rotary embeddings need an even number"
            )

    @property
    def group(self) -> int:
        """Query heads that share one key-value head."""
        return self.heads // self.kv_heads

    @property
    def config(self) -> dict[str, Any]:
        """The sizes by their names in transformers' ``LlamaConfig``."""
        return {theirs: getattr(self, own) for own, theirs in CONFIG.items()}

    def parameters(self, vocabulary: int, *, tied: bool) -> int:
        """Number of weights of a model; ``tied``: embedding and lm_head are shared."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        layer = attention + 3 * self.hidden * self.ffn + 2 * self.hidden
        tables = (1 if tied else 2) * vocabulary * self.hidden
        return self.layers * layer + self.hidden + tables


PRESETS = {
    # MicroLlama
    "0.25b": LlamaShape(hidden=1024, layers=12, heads=16, kv_heads=4, head_dim=64, ffn=5632),
    # Qwen3 0.6B; its name counts the vocabulary, the layers have 0.44 billion weights
    "0.5b": LlamaShape(hidden=1024, layers=28, heads=16, kv_heads=8, head_dim=128, ffn=3072),
    # Not a published model: as deep as SmolLM2 135M, which has more layers than a Llama of 1B or 3B
    "1b-deep": LlamaShape(hidden=1536, layers=30, heads=24, kv_heads=8, head_dim=64, ffn=6144),
    # Llama 3.2 1B
    "1b": LlamaShape(hidden=2048, layers=16, heads=32, kv_heads=8, head_dim=64, ffn=8192),
    # Llama 3.2 3B
    "3b": LlamaShape(hidden=3072, layers=28, heads=24, kv_heads=8, head_dim=128, ffn=8192),
    # Llama 3.1 8B
    "8b": LlamaShape(hidden=4096, layers=32, heads=32, kv_heads=8, head_dim=128, ffn=14336),
    # Qwen3 32B
    "32b": LlamaShape(hidden=5120, layers=64, heads=64, kv_heads=8, head_dim=128, ffn=25600),
}
"""Shapes by size, most of them the layers of a published model, without its vocabulary."""


def preset(name: str) -> LlamaShape:
    """The shape called ``name``, in upper or lower case.

    Raises:
        DraftwoodError: there is no such shape.
    """
    found = PRESETS.get(name.lower())
    if found is None:
        raise DraftwoodError(f"no shape is called {name!r}: choose {', '.join(PRESETS)}")
    return found


def check_fits(small: LlamaShape, large: LlamaShape, what: str = "model") -> None:
    """Refuse a shape into which the small model does not fit.

    Args:
        small: of the model, or of a head.
        large: the wanted shape.
        what: has the shape ``small``, for the message.

    Raises:
        DraftwoodError: a size is smaller than the model's, the large head is not a multiple of the
            small one (rotary frequencies would change), or fewer query heads share a key-value
            head.
    """
    for field in fields(LlamaShape):
        own, wanted = getattr(small, field.name), getattr(large, field.name)
        if wanted < own:
            raise DraftwoodError(
                f"{flag(field.name)} {wanted} is less than the {what}'s {own}: "
                f"a {what} can only be inflated"
            )
    if large.head_dim % small.head_dim:
        raise DraftwoodError(
            f"--head-dim {large.head_dim} is not a multiple of the {what}'s {small.head_dim}: "
            "rotary frequencies would change; give a multiple"
        )
    if large.group < small.group:
        raise DraftwoodError(
            f"--heads {large.heads} over --kv-heads {large.kv_heads} lets {large.group} query "
            f"heads share a key-value head, the {what} {small.group}: give more heads for each"
        )


def flag(name: str) -> str:
    """The command line's flag for a size."""
    return "--" + name.replace("_", "-")
