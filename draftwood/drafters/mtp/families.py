"""The families of targets whose MTP layers are read, and why those of others are not.

transformers builds MTP layers from a target's configuration. Some configurations lack a field that
it needs for that.
"""

from collections.abc import Mapping
from typing import Any

from draftwood.drafters._config import architectures
from draftwood.errors import DraftwoodError

_FIELDS: Mapping[str, Mapping[str, str]] = {
    "deepseek_v3": {},
    "glm4_moe": {},
    "glm4_moe_lite": {"mtp_mlp_layer_types": "sparse"},
    "mellum": {},
    "qwen3_5_moe_text": {"mtp_layer_types": "full_attention"},
    "qwen3_5_text": {"mtp_layer_types": "full_attention"},
    "qwen3_next": {"mtp_layer_types": "full_attention"},
}
"""The families that are read, by ``model_type``, and per-layer fields that they leave out."""

_INSIDE = ("qwen3_5_moe_text", "qwen3_5_text")
"""Families whose checkpoints read images as well; the MTP layers are those of the text alone."""

_UNSAID = {"qwen3_next": 1}
"""MTP layers of families whose ``config.json`` says nothing of them."""

_SPARSE = "the layers attend to indexed keys, for which there are no masks of trees"
_OTHER_LAYERS = "transformers builds no such layers"

_REFUSED: Mapping[str, str] = {
    "bailing_hybrid": "their kind is that of the target's last layer, and it has two",
    "deepseek_v32": _SPARSE,
    "deepseek_v4": "their hidden states have several streams (hyper-connections)",
    "ernie4_5": "they have no norm before the output, and " + _OTHER_LAYERS,
    "ernie4_5_moe": "they have no norm before the output, and " + _OTHER_LAYERS,
    "glm_moe_dsa": _SPARSE,
    "inkling": "they have position biases instead of rotary positions",
    "mimo": "their projection takes the hidden state first, and " + _OTHER_LAYERS,
    "mimo_v2_flash": "their attention has sizes of its own, and " + _OTHER_LAYERS,
    "mistral_large4": "its draft layers are a DSpark head, not MTP layers",
    "nemotron_h": "they are made of several blocks, and " + _OTHER_LAYERS,
    "step3p5": "transformers has it as the text part of Step 3.7 alone, which reads images",
}

_COUNTS = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers")
_MODELS = ("ForCausalLM", "ForConditionalGeneration")


def names_layers(raw: Mapping[str, Any]) -> bool:
    """Whether a ``config.json`` is that of a language model, not a head, with MTP layers."""
    text = _text(raw)
    return (
        any(kind.endswith(_MODELS) for kind in architectures(raw))
        and "draft_vocab_size" not in raw
        and (any(text.get(name) for name in _COUNTS) or text.get("model_type") in [*_UNSAID])
    )


def refuse_family(raw: Mapping[str, Any]) -> None:
    """Refuse a checkpoint whose MTP layers are not read, by its ``config.json``.

    Raises:
        DraftwoodError: it is of another family than those that are read; the message says why its
            layers are not.
    """
    if raw.get("speculators_model_type") is not None:
        raise DraftwoodError(
            "these are weights of the speculators library, whose names of MTP layers are not read: "
            "name a checkpoint that has the layers under the target's own names, head=PATH"
        )
    family = str(_text(raw).get("model_type", ""))
    reason = _REFUSED.get(family)
    if reason is not None:
        raise DraftwoodError(f"MTP layers of the family {family!r} are not read: {reason}")
    if family not in _FIELDS:
        raise DraftwoodError(
            f"there are no MTP layers to draft with: the target's family is {family!r}, and those "
            f"of {', '.join(sorted(_FIELDS))} are read; draft with a model or a head"
        )
    if _text(raw) is not raw and family not in _INSIDE:
        raise DraftwoodError(
            f"MTP layers of multi-modal checkpoints are not read ({raw.get('model_type')!r}); "
            "draft with a model or a head"
        )


def complete_config(config: Any) -> int:
    """Add the fields to a transformers configuration that it lacks; returns the number of layers.

    Raises:
        DraftwoodError: it names no MTP layers.
    """
    family = config.model_type
    said = [found for name in _COUNTS if (found := getattr(config, name, None)) is not None]
    count = said[0] if said else _UNSAID.get(family, 0)
    if count < 1:
        raise DraftwoodError(
            f"the target has no MTP layers: {_COUNTS[0]} is {count} in its config.json; draft with "
            "a model or a head"
        )
    config.num_mtp_layers = count
    for name, kind in _FIELDS[family].items():
        if getattr(config, name, None) is None:
            setattr(config, name, [kind] * count)
    return int(count)


def _text(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a ``config.json`` that is about the language model."""
    found = raw.get("text_config")
    return found if found and isinstance(found, Mapping) else raw
