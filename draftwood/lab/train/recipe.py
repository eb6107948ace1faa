"""Shapes and training settings of models, and the learning rate schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftwood.errors import DraftwoodError
from draftwood.protocols import setting
from draftwood.protocols.settings import Part

if TYPE_CHECKING:
    from transformers import LlamaConfig
    from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig


VOCABULARY = 4096
"""Tokens of a new tokenizer."""


@dataclass(frozen=True)
class ModelShape(Part):
    """Sizes of a model with tied embeddings; by default those of the embedded target, a Llama.

    With ``recurrent`` layers it has the layout of Qwen3.5, and as many recurrent heads, of the same
    size, as query heads.
    """

    hidden: int = setting(256, "Hidden size.", least=1)
    layers: int = setting(8, "Number of layers.", least=1)
    heads: int = setting(4, "Number of query heads.", least=1)
    kv_heads: int = setting(2, "Number of key-value heads.", least=1)
    head_dim: int = setting(64, "Size of a head.", least=1)
    ffn: int = setting(576, "Intermediate size of the feed-forward layers.", least=1)
    context: int = setting(4096, "", least=1)
    recurrent: int = setting(
        0, "Gated DeltaNet layers before each attention layer, as in Qwen3.5; 0: a Llama.", least=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads % self.kv_heads:
            raise DraftwoodError(
                f"--heads {self.heads} is no multiple of --kv-heads {self.kv_heads}; give one."
            )
        if self.head_dim % 2:
            raise DraftwoodError(
                f"--head-dim is {self.head_dim}; rotary positions need an even one."
            )
        if self.layers % (self.recurrent + 1):
            raise DraftwoodError(
                f"--layers {self.layers} is no multiple of {self.recurrent + 1}, of which the last "
                "one has attention; give one."
            )

    def config(self, vocab_size: int) -> LlamaConfig | Qwen3_5TextConfig:
        """The Hugging Face configuration; token 0 is begin and end of text.

        Raises:
            DraftwoodError: the installed transformers lacks Qwen3.5.
        """
        from transformers import LlamaConfig

        shared: dict[str, Any] = {
            "vocab_size": vocab_size,
            "hidden_size": self.hidden,
            "intermediate_size": self.ffn,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": self.context,
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": True,
            "bos_token_id": 0,
            "eos_token_id": 0,
        }
        if not self.recurrent:
            return LlamaConfig(**shared)
        try:
            from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
        except ImportError as error:
            raise DraftwoodError(
                "the installed transformers lacks Qwen3.5: install a newer one, or leave out "
                "--recurrent"
            ) from error
        linear: dict[str, Any] = {"num_key_heads": self.heads, "num_value_heads": self.heads}
        linear |= {"key_head_dim": self.head_dim, "value_head_dim": self.head_dim}
        own = {f"linear_{name}": size for name, size in linear.items()}
        kinds = ["linear_attention"] * self.recurrent + ["full_attention"]
        return Qwen3_5TextConfig(
            **shared, **own, layer_types=kinds * (self.layers // len(kinds)), pad_token_id=None
        )


@dataclass(frozen=True)
class TrainingRecipe(Part):
    """Training settings; each batch is one update.

    Rows cut in halves are cheaper; later updates train positions beyond half a row.
    """

    tokens: int = setting(
        20_000_000,
        "Total training tokens; may change when resuming. With more of them, rates that have begun "
        "to fall rise again.",
    )
    length: int = setting(1024, "Tokens per row.", least=2)
    rows: int = setting(6, "Rows per batch.", least=1)
    short_share: float = setting(
        0.7, "Share of updates, the first ones, with rows cut in halves.", least=0, most=1
    )
    warmup: int = setting(60, "Updates until the peak rates.", least=0)
    decay_share: float = setting(
        0.35, "Share of updates, the last ones, with decreasing rates.", least=0, most=1
    )
    muon_rate: float = setting(0.02, "Peak learning rate of hidden matrices (Muon).", least=0)
    adam_rate: float = setting(
        3e-3, "Peak learning rate of embeddings, output matrices and norms (AdamW).", least=0
    )
    teacher_share: float = setting(
        0.0, "Weight of the target's distribution in the loss.", least=0, most=1
    )
    teacher_from: float = setting(
        0.0, "Share of updates before the target's distribution is used.", least=0, most=1
    )
    seed: int = setting(
        1, "Seed of the initial weights and the data order.", least=0, most=2**63 - 1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tokens < self.length * self.rows:
            raise DraftwoodError(
                f"--tokens {self.tokens} is less than one batch, {self.rows} x {self.length}."
            )
        if self.length % 2:
            raise DraftwoodError(f"--length is {self.length}; give an even one.")

    @property
    def steps(self) -> int:
        """Total number of updates."""
        return self.tokens // (self.length * self.rows)

    @property
    def decay_from(self) -> int:
        """Updates before the rates begin to fall."""
        return self.steps - max(1, round(self.steps * self.decay_share))

    def rate(self, step: int) -> float:
        """Factor on the peak rates at update ``step``: warm-up, constant, decay to near zero.

        Nothing before the decay depends on the total, so that a run at constant rates can be
        shortened or extended (warm-up, stable, decay: S. Hu et al., MiniCPM, 2024, section 4).
        """
        rise = (step + 1) / max(1, self.warmup)
        return min(1.0, rise, (self.steps - step) / (self.steps - self.decay_from))

    def halves(self, step: int) -> bool:
        """Whether rows are cut in halves at update ``step``."""
        return step < self.steps * self.short_share

    def taught(self, step: int) -> bool:
        """Whether the loss includes the teacher at update ``step``."""
        return self.teacher_share > 0.0 and step >= self.steps * self.teacher_from


TARGET_SHAPE = ModelShape()
DRAFT_SHAPE = ModelShape(hidden=96, layers=2, heads=3, kv_heads=1, head_dim=32, ffn=320)

TARGET_RECIPE = TrainingRecipe()
DRAFT_RECIPE = TrainingRecipe(tokens=10_000_000, teacher_share=0.9, seed=2)
# A head learns from the target alone.
HEAD_RECIPE = TrainingRecipe(
    tokens=4_000_000, short_share=1.0, adam_rate=1e-3, teacher_share=1.0, seed=3
)
