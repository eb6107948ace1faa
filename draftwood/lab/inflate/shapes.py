"""Sizes of Llama-layout models, and whether one model fits into another's shape.

Plain numbers: this file knows neither tensors nor checkpoints. A vocabulary is no part of a shape,
because inflation keeps the small model's.
"""

from dataclasses import dataclass, fields

from draftwood.errors import DraftwoodError


@dataclass(frozen=True)
class Shape:
    """Widths and counts of a Llama's layers.

    Raises:
        DraftwoodError: a size is not positive, the query heads cannot be shared out evenly among
            the key-value heads, the hidden size is not a multiple of the heads (transformers
            loads no such Llama), or rotary pairs would not fill a head.
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
                raise DraftwoodError(f"{_flag(field.name)} is {size}: give at least 1")
        if self.heads % self.kv_heads:
            raise DraftwoodError(
                f"{self.heads} heads cannot share {self.kv_heads} key-value heads evenly: "
                "give a multiple"
            )
        if self.hidden % self.heads:
            raise DraftwoodError(
                f"--hidden {self.hidden} is not a multiple of --heads {self.heads}, which "
                "a Llama's configuration demands: give a multiple"
            )
        if self.head_dim % 2:
            raise DraftwoodError(
                f"--head-dim is {self.head_dim}: rotary positions turn pairs of dimensions, "
                "give an even number"
            )

    @property
    def group(self) -> int:
        """Query heads that share one key-value head."""
        return self.heads // self.kv_heads

    def parameters(self, vocabulary: int, *, tied: bool) -> int:
        """Number of weights of a model of this shape; ``tied``: embedding and lm_head are one."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        layer = attention + 3 * self.hidden * self.ffn + 2 * self.hidden
        tables = (1 if tied else 2) * vocabulary * self.hidden
        return self.layers * layer + self.hidden + tables


PRESETS = {
    # MicroLlama
    "0.25b": Shape(hidden=1024, layers=12, heads=16, kv_heads=4, head_dim=64, ffn=5632),
    # Qwen3 0.6B: that name counts a vocabulary, the layers are 0.44 billion
    "0.5b": Shape(hidden=1024, layers=28, heads=16, kv_heads=8, head_dim=128, ffn=3072),
    # Llama 3.2 1B
    "1b": Shape(hidden=2048, layers=16, heads=32, kv_heads=8, head_dim=64, ffn=8192),
    # Llama 3.2 3B
    "3b": Shape(hidden=3072, layers=28, heads=24, kv_heads=8, head_dim=128, ffn=8192),
    # Llama 3.1 8B
    "8b": Shape(hidden=4096, layers=32, heads=32, kv_heads=8, head_dim=128, ffn=14336),
}
"""Layers of published models by the size that is nearest; vocabularies left out."""


def preset(name: str) -> Shape:
    """The shape called ``name``, in any case.

    Raises:
        DraftwoodError: there is none; names those that there are.
    """
    found = PRESETS.get(name.lower())
    if found is None:
        raise DraftwoodError(f"no shape is called {name!r}: choose {', '.join(PRESETS)}")
    return found


def check_fits(small: Shape, large: Shape) -> None:
    """Refuse a shape that cannot hold the small model's function.

    Raises:
        DraftwoodError: some size is smaller than the model's, the large head is no multiple of
            the small one (its rotary frequencies would not contain the small ones), or fewer
            query heads share a key-value head.
    """
    for field in fields(Shape):
        mine, wanted = getattr(small, field.name), getattr(large, field.name)
        if wanted < mine:
            raise DraftwoodError(
                f"{_flag(field.name)} {wanted} is less than the model's {mine}: "
                "a model can only be inflated"
            )
    if large.head_dim % small.head_dim:
        raise DraftwoodError(
            f"--head-dim {large.head_dim} is no multiple of the model's {small.head_dim}: "
            "rotary frequencies would change; give a multiple"
        )
    if large.group < small.group:
        raise DraftwoodError(
            f"--heads {large.heads} over --kv-heads {large.kv_heads} lets {large.group} query "
            f"heads share a key-value head, the model {small.group}: give more heads for each"
        )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
