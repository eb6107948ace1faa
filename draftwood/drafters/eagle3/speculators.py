"""Heads in the layout of the ``speculators`` library: which of its formats are read here.

``speculators_model_type`` names the format. Older versions of the library wrote EAGLE-1 heads as
well (``eagle``), under names of its own.
"""

from collections.abc import Mapping
from typing import Any

import torch

from draftwood.errors import DraftwoodError

EAGLE1 = "eagle"
_HEADS = ("eagle3", "peagle")
_BLOCKS = "a drafter of DFlash's family, not an EAGLE head: write drafter=dflash"
_OTHERS = {
    EAGLE1: "an EAGLE-1 head: give an EAGLE-3 head",
    "dflash": _BLOCKS,
    "dflash2": _BLOCKS,
    "dspark": _BLOCKS,
    "xpress": _BLOCKS,
    "mtp": (
        "a target's MTP layer under names of speculators, which is not read: give a checkpoint "
        "that has the layer under the target's own names, --method mtp with head=PATH"
    ),
}
_NAMES = (("fusion_fc.", "fc."), ("transformer.", "layers.0."))
"""Tensors of an EAGLE-1 head: speculators' names, and those of EAGLE's own checkpoints."""


def refuse_other_types(raw: Mapping[str, Any], *also: str) -> None:
    """Refuse a ``config.json`` of another format of speculators than EAGLE-3 and P-EAGLE.

    Args:
        raw: its content; that of another library passes.
        also: further formats that are read.

    Raises:
        DraftwoodError: it is; the message says what it is and what reads it.
    """
    kind = raw.get("speculators_model_type")
    if kind is None or kind in (*_HEADS, *also):
        return
    unknown = f"none of the formats that are read ({EAGLE1}, {', '.join(_HEADS)})"
    known = _OTHERS.get(str(kind), unknown)
    raise DraftwoodError(f'speculators_model_type is "{kind}": it is {known}')


def is_eagle1_of_speculators(raw: Mapping[str, Any]) -> bool:
    """Whether a ``config.json`` is that of an EAGLE-1 head in this layout."""
    return bool(raw.get("speculators_model_type") == EAGLE1)


def as_eagle1(
    raw: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]
) -> tuple[Mapping[str, Any], dict[str, torch.Tensor]]:
    """The layer's configuration and the tensors by the names of EAGLE's own checkpoints.

    Raises:
        DraftwoodError: it is a variant that computes something else.
    """
    if raw.get("layernorms"):
        raise DraftwoodError(
            "the EAGLE-1 head has layernorms = true (further norms of the embedding, before the "
            "layer and before the lm_head), a variant that is not read: give another head"
        )
    layer = raw.get("transformer_layer_architecture", "LlamaDecoderLayer")
    inner = raw.get("transformer_layer_config")
    if layer != "LlamaDecoderLayer" or not isinstance(inner, Mapping):
        raise DraftwoodError(
            f"the EAGLE-1 head's layer is {layer}, with {'its' if inner else 'no'} "
            "transformer_layer_config: give a head with a LlamaDecoderLayer and its configuration"
        )
    found = {}
    for name, tensor in tensors.items():
        for theirs, own in _NAMES:
            if name.startswith(theirs):
                name = own + name.removeprefix(theirs)
        found[name] = tensor
    return inner, found
