"""Settings of an EAGLE-3 head, and the configuration that follows from them and a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftwood.errors import DraftwoodError
from draftwood.lab.train.recipe import ModelShape
from draftwood.protocols import setting
from draftwood.protocols.settings import Part

if TYPE_CHECKING:
    from draftwood.drafters.eagle3.config import Eagle3Config
    from draftwood.lab.train.teacher import Teacher

_DRAFT_VOCABULARY = 32_000
_ROPE_THETA = 10_000.0


@dataclass(frozen=True)
class HeadPlan(Part):
    """Settings of a head; None: derived from the target."""

    unroll: int = setting(4, "Trained steps: the length of draft chains.", least=1)
    taps: tuple[int, ...] | None = setting(
        None,
        "Target layers whose inputs are read, such as 2+4+5.  [default: 2, the middle one and the "
        "third from the end]",
    )
    draft_vocab: int | None = setting(
        None,
        "Size of the draft vocabulary, the most frequent tokens.  [default: all, up to 32,000]",
        least=1,
    )
    tied: bool = setting(
        False, "Draft with the target's own output rows: they are neither trained nor stored."
    )
    fc_norm: bool = setting(
        False,
        "Norm each tap before the projection, at first to equal channels: faster to train where a "
        "few channels of the target are much larger than the others.",
    )
    heads: int | None = setting(None, "Number of query heads.  [default: the target's]", least=1)
    kv_heads: int | None = setting(
        None, "Number of key-value heads.  [default: the target's]", least=1
    )
    head_dim: int | None = setting(None, "Size of a head.  [default: the target's]", least=1)
    ffn: int | None = setting(
        None, "Intermediate size of the feed-forward layer.  [default: the target's]", least=1
    )

    def config(self, teacher: Teacher) -> Eagle3Config:
        """The head's configuration for this target.

        Raises:
            DraftwoodError: the plan does not fit the target, or contradicts itself.
        """
        from draftwood.drafters.eagle3.config import Eagle3Config

        shape, target = self._shape(teacher), teacher.config
        taps = tapped(self.taps, teacher)
        rope = getattr(target, "rope_parameters", None) or {}
        return Eagle3Config(
            vocab_size=teacher.vocab_size,
            draft_vocab_size=most_drafted(self.draft_vocab, teacher.vocab_size),
            hidden_size=shape.hidden,
            target_hidden_size=shape.hidden,
            intermediate_size=shape.ffn,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            max_position_embeddings=shape.context,
            rms_norm_eps=getattr(target, "rms_norm_eps", 1e-6),
            rope_parameters={
                "rope_type": "default",
                "rope_theta": rope.get("rope_theta", _ROPE_THETA),
            },
            taps=taps,
            fc_norm=self.fc_norm,
            bos_token_id=None,
            eos_token_id=None,
        )

    def _shape(self, teacher: Teacher) -> ModelShape:
        target = teacher.config
        heads = target.num_attention_heads
        shape = ModelShape(
            hidden=target.hidden_size,
            layers=1,
            heads=self.heads or heads,
            kv_heads=self.kv_heads or getattr(target, "num_key_value_heads", None) or heads,
            head_dim=(
                self.head_dim or getattr(target, "head_dim", None) or target.hidden_size // heads
            ),
            ffn=self.ffn or getattr(target, "intermediate_size", None) or 4 * target.hidden_size,
            context=getattr(target, "max_position_embeddings", None) or ModelShape.context,
        )
        if shape.hidden % shape.heads:
            raise DraftwoodError(
                f"Llama layers of {shape.hidden} channels, the target's, cannot have {shape.heads} "
                "heads; give --heads that divide them."
            )
        return shape


def tapped(asked: tuple[int, ...] | None, teacher: Teacher) -> tuple[int, ...]:
    """The layers that are read: what is asked for, or EAGLE-3's usual ones.

    Raises:
        DraftwoodError: the target has no such layer.
    """
    from draftwood.drafters.eagle3.config import default_taps

    taps = default_taps(teacher.layers) if asked is None else asked
    if not all(0 <= tap < teacher.layers for tap in taps):
        raise DraftwoodError(
            f"--taps {'+'.join(map(str, taps))} are not all layers of {teacher.name}; "
            f"give layers from 0 to {teacher.layers - 1}."
        )
    return taps


def most_drafted(asked: int | None, vocab_size: int) -> int:
    """Size of a draft vocabulary: what is asked for, or all tokens, up to 32,000.

    Raises:
        DraftwoodError: the target has fewer tokens.
    """
    if asked is None:
        return min(vocab_size, _DRAFT_VOCABULARY)
    if asked > vocab_size:
        raise DraftwoodError(
            f"--draft-vocab is {asked}; give 1 to {vocab_size}, the target's tokens."
        )
    return asked
