"""The configuration of transformers' own DFlash drafter, ``MuseGlimmerAssistantModel``.

It names everything at the top level, ``target_layer_ids`` as z-lab does. No layer is causal, and a
sliding one sees the keys that are at most ``sliding_window`` away, one more than in other layouts.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

MODEL_TYPE = "muse_glimmer_assistant"

_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "hidden_size": 6656,
        "intermediate_size": 19968,
        "num_hidden_layers": 5,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 131072,
        "sliding_window": 2048,
        "block_size": 16,
        "mask_token_id": 201818,
        "target_layer_ids": (1, 13, 25, 37, 49),
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    }
)
"""Those of transformers' class, which a ``config.json`` may leave out."""


def is_assistant(raw: Mapping[str, Any]) -> bool:
    """Whether a ``config.json`` is of transformers' own drafter."""
    return bool(raw.get("model_type") == MODEL_TYPE)


def as_others(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with the names and meanings of z-lab's layout."""
    found = {**_DEFAULTS, **{name: value for name, value in raw.items() if value is not None}}
    found.setdefault("layer_types", ["sliding_attention"] * found["num_hidden_layers"])
    return {
        **found,
        "model_type": "qwen3",
        "is_causal": False,
        "sliding_window": found["sliding_window"] + 1,
    }
