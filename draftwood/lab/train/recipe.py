"""The numbers that define a training run, as frozen values, and the schedule that follows."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from draftwood.errors import DraftwoodError

if TYPE_CHECKING:
    from transformers import LlamaConfig


UNROLL = 4
"""Steps of an EAGLE-3 head that are trained, where nothing else is asked for."""


@dataclass(frozen=True)
class Shape:
    """A Llama model's shape. Sizes in channels; embeddings are tied."""

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
        """Build the Hugging Face configuration, token 0 being begin and end of text."""
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
class Recipe:
    """How long and how fast to train.

    Attributes:
        tokens: how many tokens to train on in all; may change when resuming.
        length: tokens in a row.
        rows: rows in a batch, one update each.
        short_share: share of the updates during which rows are cut in halves,
            which is cheaper; positions beyond half a row are learnt in the rest.
        warmup: updates over which the rates rise from zero.
        decay_share: share of the updates, the last, over which the rates fall to zero.
        muon_rate: peak rate of the 2-D hidden matrices.
        adam_rate: peak rate of embeddings, output matrices and norms.
        teacher_share: weight of the teacher's distribution in the loss.
        teacher_from: share of the updates after which there is a teacher.
        seed: of the initial weights and of the data order.
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
                f"{self.tokens} tokens are less than one batch of {self.rows} x {self.length}."
            )
        if self.length < 2 or self.length % 2 or self.rows < 1:
            raise DraftwoodError("A batch needs one row or more of an even length.")
        for name in ("short_share", "decay_share", "teacher_share", "teacher_from"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise DraftwoodError(f"{name} must lie in 0 to 1, got {value}.")

    @property
    def steps(self) -> int:
        """Updates in all."""
        return self.tokens // (self.length * self.rows)

    def rate(self, step: int) -> float:
        """Factor on the peak rates at update ``step``: up, constant, then down to near zero.

        Nothing before the fall depends on the total, so a run can be shortened or
        extended while it is at constant rates (warm-up, stable, decay: S. Hu et al.,
        MiniCPM, 2024, section 4).
        """
        fall = max(1, round(self.steps * self.decay_share))
        rise = (step + 1) / max(1, self.warmup)
        return min(1.0, rise, (self.steps - step) / fall)

    def halves(self, step: int) -> bool:
        """Whether rows are cut in halves at update ``step``."""
        return step < self.steps * self.short_share

    def taught(self, step: int) -> bool:
        """Whether the teacher has a say at update ``step``."""
        return self.teacher_share > 0.0 and step >= self.steps * self.teacher_from

    def with_tokens(self, tokens: int) -> Recipe:
        """Return the same recipe for another number of tokens."""
        return replace(self, tokens=tokens)


TARGET_SHAPE = Shape(hidden=256, layers=8, heads=4, kv_heads=2, head_dim=64, ffn=576)
DRAFT_SHAPE = Shape(hidden=96, layers=2, heads=3, kv_heads=1, head_dim=32, ffn=320)

TARGET_RECIPE = Recipe(tokens=20_000_000)
DRAFT_RECIPE = Recipe(tokens=10_000_000, teacher_share=0.9, seed=2)
# The target has all the say, so no option changes its share.
HEAD_RECIPE = Recipe(tokens=4_000_000, short_share=1.0, adam_rate=1e-3, teacher_share=1.0, seed=3)
