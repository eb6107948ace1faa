"""Settings of a DFlash drafter that is trained, and the configuration that follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftwood.errors import DraftwoodError
from draftwood.lab.train.head_plan import tapped
from draftwood.protocols import TargetInfo, setting
from draftwood.protocols.settings import Part

if TYPE_CHECKING:
    from draftwood.drafters.dflash.config import DFlashConfig
    from draftwood.lab.train.teacher import Teacher

_ROPE_THETA = 10_000.0


@dataclass(frozen=True)
class DFlashPlan(Part):
    """Settings of a drafter; None: derived from the target."""

    block: int = setting(8, "Slots of a block; one less is drafted.", least=2)
    anchors: int = setting(32, "Blocks that are trained in a row of text.", least=1)
    layers: int = setting(2, "Number of layers.", least=1)
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
    heads: int | None = setting(None, "Number of query heads.  [default: the target's]", least=1)
    kv_heads: int | None = setting(
        None, "Number of key-value heads.  [default: the target's]", least=1
    )
    head_dim: int | None = setting(None, "Size of a head.  [default: the target's]", least=1)
    ffn: int | None = setting(
        None, "Intermediate size of the feed-forward layer.  [default: the target's]", least=1
    )

    def raw(self, teacher: Teacher) -> dict[str, Any]:
        """The content of ``config.json``, in z-lab's layout, for this target.

        Raises:
            DraftwoodError: the plan does not fit the target, or contradicts itself.
        """
        target = teacher.config
        heads = self.heads or target.num_attention_heads
        kv_heads = self.kv_heads or getattr(target, "num_key_value_heads", None) or heads
        if heads % kv_heads:
            raise DraftwoodError(
                f"{heads} query heads are no multiple of {kv_heads} key-value heads; give other "
                "--heads or --kv-heads."
            )
        taps = tapped(self.taps, teacher)
        if 0 in taps:
            raise DraftwoodError(
                "--taps has 0, the embedding, which DFlash drafters do not read; give layers from 1"
            )
        size = self.head_dim or getattr(target, "head_dim", None)
        rope = getattr(target, "rope_parameters", None) or {}
        return {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "hidden_size": target.hidden_size,
            "intermediate_size": self.ffn
            or getattr(target, "intermediate_size", None)
            or 4 * target.hidden_size,
            "num_hidden_layers": self.layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": size or target.hidden_size // target.num_attention_heads,
            "rms_norm_eps": getattr(target, "rms_norm_eps", 1e-6),
            "rope_theta": rope.get("rope_theta", _ROPE_THETA),
            "max_position_embeddings": getattr(target, "max_position_embeddings", 2048),
            "vocab_size": teacher.vocab_size,
            "num_target_layers": teacher.layers,
            "block_size": self.block,
            # Published ids name the layer whose output is read.
            "dflash_config": {"target_layer_ids": [tap - 1 for tap in taps], "mask_token_id": 0},
        }

    def config(self, teacher: Teacher) -> DFlashConfig:
        """The configuration for this target.

        Raises:
            DraftwoodError: see :meth:`raw`.
        """
        from draftwood.drafters.dflash.config import read_config

        raw, output = self.raw(teacher), teacher.head
        info = TargetInfo(
            vocab_size=teacher.vocab_size,
            context_limit=raw["max_position_embeddings"],
            layers=teacher.layers,
            hidden_size=raw["hidden_size"],
            device=output.device,
            dtype=output.dtype,
        )
        return read_config(raw, info)
