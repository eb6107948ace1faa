"""The configuration of Hydra heads, and of the prefix layer of Hydra++.

``config.json`` names the variant and the numbers of heads and layers. The prefix layer
(``prefix-mlp``) is a Llama layer of the target's sizes, which the target's configuration has.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from transformers import LlamaConfig

from draftwood.errors import DraftwoodError
from draftwood.models.invalid import INVALID, reason_of
from draftwood.protocols import TargetInfo

NOUN = "Hydra heads"
_PREFIX = "prefix-mlp"
_VARIANTS = ("mlp", _PREFIX)
_SIZES = (
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_parameters",
    "attention_bias",
    "mlp_bias",
)
"""Fields of the target's configuration that shape the prefix layer."""


@dataclass(frozen=True)
class HydraConfig:
    """The configuration of Hydra heads.

    Attributes:
        heads: number of heads, which is the deepest draft.
        layers: linear layers of each head, the output excluded.
        prefix: sizes of the prefix layer; None: there is none.
    """

    heads: int
    layers: int
    prefix: LlamaConfig | None = None


def read_config(raw: Mapping[str, Any], target: TargetInfo) -> HydraConfig:
    """The configuration in a ``config.json``, for a target.

    Raises:
        DraftwoodError: it is of a variant that is not read, is not complete, or needs sizes that
            the target's configuration does not have.
    """
    kind = raw.get("hydra_head_arch")
    if kind not in _VARIANTS:
        raise DraftwoodError(
            f"hydra_head_arch is {kind!r}, a variant that is not read: give {NOUN} of "
            f"{' or '.join(_VARIANTS)}"
        )
    if raw.get("grounded_heads") is not True:
        raise DraftwoodError(
            f"grounded_heads is {raw.get('grounded_heads')!r}: give {NOUN} that read the drafted "
            "tokens, with grounded_heads true"
        )
    if raw.get("hidden_state_offset"):
        raise DraftwoodError(
            f"hidden_state_offset is {raw['hidden_state_offset']}: give {NOUN} that read the "
            "target's last hidden state, with hidden_state_offset 0"
        )
    heads, layers = (_count(raw, name) for name in ("hydra_num_heads", "hydra_num_layers"))
    return HydraConfig(heads, layers, _prefix(target) if kind == _PREFIX else None)


def _count(raw: Mapping[str, Any], name: str) -> int:
    found = raw.get(name)
    if not isinstance(found, int) or found < 1:
        raise DraftwoodError(
            f"{name} is {found!r} in the config.json of the {NOUN}: give 1 or more"
        )
    return found


def _prefix(target: TargetInfo) -> LlamaConfig:
    """A Llama layer of the target's sizes."""
    fields = {name: target.config[name] for name in _SIZES if target.config.get(name) is not None}
    if "num_attention_heads" not in fields:
        raise DraftwoodError(
            "the prefix layer of Hydra heads has the sizes of the target's layers, and this target "
            "has no configuration that names them: give heads of the variant mlp"
        )
    try:
        # A copy, since transformers completes the rope parameters in place.
        return LlamaConfig(
            **deepcopy(fields),
            hidden_size=target.hidden_size,
            num_hidden_layers=1,
            bos_token_id=None,
            eos_token_id=None,
        )
    except INVALID as error:
        raise DraftwoodError(
            f"the prefix layer of Hydra heads is Llama's, and the target's sizes do not fit it: "
            f"{reason_of(error)}"
        ) from error
