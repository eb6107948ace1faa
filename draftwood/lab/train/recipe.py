"""Shapes and training settings of models, and the learning rate schedule."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from draftwood.errors import DraftwoodError

if TYPE_CHECKING:
    from transformers import LlamaConfig


UNROLL = 4
"""Default number of trained steps of an EAGLE-3 head."""


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a Llama model with tied embeddings."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    context: int = 4096

    def __post_init__(self) -> None:
        if min(asdict(self).values()) < 1:
            raise DraftwoodError(f"Every size of a model must be 1 or more, got {self}.")
        if self.heads % self.kv_heads:
            raise DraftwoodError(
                f"{self.heads} heads cannot share {self.kv_heads} key-value heads evenly."
            )
        if self.head_dim % 2:
            raise DraftwoodError(f"Rotary positions need an even head size, got {self.head_dim}.")

    def config(self, vocab_size: int) -> LlamaConfig:
        """The Hugging Face configuration; token 0 is begin and end of text."""
        from transformers import LlamaConfig

        return LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=self.hidden,
            intermediate_size=self.ffn,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_dim,
            max_position_embeddings=self.context,
            rms_norm_eps=1e-6,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=0,
        )


@dataclass(frozen=True)
class TrainingRecipe:
    """Training settings.

    Attributes:
        tokens: total number of training tokens; may change when resuming.
        length: tokens per row.
        rows: rows per batch; each batch is one update.
        short_share: share of updates, the first ones, with rows cut in halves, which is cheaper;
            later updates train positions beyond half a row.
        warmup: updates during which the rates increase from zero.
        decay_share: share of updates, the last ones, during which the rates decrease to zero.
        muon_rate: peak learning rate of the 2-D matrices of hidden layers.
        adam_rate: peak learning rate of embeddings, output matrices and norms.
        teacher_share: weight of the teacher's distribution in the loss.
        teacher_from: share of updates without a teacher, the first ones.
        seed: seed of the initial weights and of the data order.
    """

    tokens: int
    length: int = 1024
    rows: int = 6
    short_share: float = 0.7
    warmup: int = 60
    decay_share: float = 0.35
    muon_rate: float = 0.02
    adam_rate: float = 3e-3
    teacher_share: float = 0.0
    teacher_from: float = 0.0
    seed: int = 1

    def __post_init__(self) -> None:
        if self.tokens < self.length * self.rows:
            raise DraftwoodError(
                f"{self.tokens} tokens are fewer than one batch of {self.rows} x {self.length}."
            )
        if self.length < 2 or self.length % 2 or self.rows < 1:
            raise DraftwoodError("A batch needs one row or more of an even length.")
        for name in ("short_share", "decay_share", "teacher_share", "teacher_from"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise DraftwoodError(f"{name} must lie in 0 to 1, got {value}.")

    @property
    def steps(self) -> int:
        """Total number of updates."""
        return self.tokens // (self.length * self.rows)

    def rate(self, step: int) -> float:
        """Factor on the peak rates at update ``step``: warm-up, constant, decay to near zero.

        Nothing before the decay depends on the total, so that a run at constant rates can be
        shortened or extended (warm-up, stable, decay: S. Hu et al., MiniCPM, 2024, section 4).
        """
        fall = max(1, round(self.steps * self.decay_share))
        rise = (step + 1) / max(1, self.warmup)
        return min(1.0, rise, (self.steps - step) / fall)

    def halves(self, step: int) -> bool:
        """Whether rows are cut in halves at update ``step``."""
        return step < self.steps * self.short_share

    def taught(self, step: int) -> bool:
        """Whether the loss includes the teacher at update ``step``."""
        return self.teacher_share > 0.0 and step >= self.steps * self.teacher_from


TARGET_SHAPE = ModelShape(hidden=256, layers=8, heads=4, kv_heads=2, head_dim=64, ffn=576)
DRAFT_SHAPE = ModelShape(hidden=96, layers=2, heads=3, kv_heads=1, head_dim=32, ffn=320)

TARGET_RECIPE = TrainingRecipe(tokens=20_000_000)
DRAFT_RECIPE = TrainingRecipe(tokens=10_000_000, teacher_share=0.9, seed=2)
# A head learns from the target alone.
HEAD_RECIPE = TrainingRecipe(
    tokens=4_000_000, short_share=1.0, adam_rate=1e-3, teacher_share=1.0, seed=3
)
