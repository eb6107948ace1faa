"""Loads MTP layers from a target's checkpoint, by transformers' ``MtpModel``.

``MtpModel`` takes the kind of its layers from a target. Here that is a model of the same
configuration without weights, so that an attached target stays as it is. The layers are
``model.layers.N.*`` behind the target's N layers, or ``mtp.*``.
"""

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, modeling_layers

from draftwood.drafters._config import reading
from draftwood.drafters._directory import DrafterDirectory, located
from draftwood.drafters.mtp.families import complete_config, refuse_family
from draftwood.drafters.mtp.head import MtpHead
from draftwood.errors import DraftwoodError, first_line
from draftwood.models.invalid import INVALID, reason_of
from draftwood.protocols import Target, TargetInfo
from draftwood.protocols.drafter import OWN

_NOUN = "a checkpoint with MTP layers"
_SINCE = "5.17"
"""The first release of transformers with ``MtpModel``."""
_PLAIN = ("F64", "F32", "F16", "BF16")
_BY_LAYER = ("layer_types", "mlp_layer_types")


def load_mtp(name: str, target: Target, dtype: torch.dtype) -> nn.ModuleList:
    """Load the MTP layers of a target, each a :class:`MtpHead`, in evaluation mode on its device.

    Args:
        name: a directory or hub id, or ``"target"``, the one that the target was loaded from.
        target: whose layers they are.
        dtype: of their weights.

    Raises:
        DraftwoodError: there is no such checkpoint, it lacks the layers, or they are quantised, of
            a family that is not read, or another target's.
    """
    built = _mtp_model()
    info = target.info
    directory = located(_place(name, info), _NOUN, ())
    refuse_family(directory.config())
    config = _config(directory)
    count = complete_config(config)
    _check_sizes(config, info)
    patterns = _check_stored(directory.path, config.num_hidden_layers, count)
    auto: Any = AutoModelForCausalLM
    with reading("the target's"), torch.device("meta"):
        main: Any = auto.from_config(config, dtype=dtype, trust_remote_code=False)
    main._keys_to_ignore_on_load_unexpected = patterns
    try:
        loaded = built.from_pretrained(main, device_map={"": info.device})
    except (OSError, RuntimeError, ValueError, KeyError, SafetensorError) as error:
        raise DraftwoodError(
            f"cannot load the MTP layers of {directory.path}: {first_line(error)}"
        ) from error
    rotary = type(main.get_decoder().rotary_emb)
    heads = [
        _head(layer, loaded.config, number, rotary, target)
        for number, layer in enumerate(loaded.layers)
    ]
    return nn.ModuleList(heads)


def _mtp_model() -> Any:
    """transformers' class of that name."""
    found = getattr(modeling_layers, "MtpModel", None)
    if found is None:
        raise DraftwoodError(
            f"MTP layers need transformers {_SINCE} or newer, and {transformers.__version__} is "
            f"installed: pip install 'transformers>={_SINCE}'"
        )
    return found


def _place(name: str, info: TargetInfo) -> str:
    found = name if name != OWN else "" if info.origin is None else info.origin.name
    if not found:
        raise DraftwoodError(
            "this target was not loaded from a checkpoint, so its MTP layers cannot be found: name "
            "the directory or hub id that has them, head=PATH"
        )
    return found


def _config(directory: DrafterDirectory) -> Any:
    try:
        whole = AutoConfig.from_pretrained(directory.path, trust_remote_code=False)
    except (OSError, *INVALID) as error:
        raise DraftwoodError(
            f"the config.json of {directory.path} cannot be used: {reason_of(error)}"
        ) from error
    found = whole.get_text_config()
    found.name_or_path = str(directory.path)
    return found


def _check_sizes(config: Any, info: TargetInfo) -> None:
    found = [config.hidden_size, config.vocab_size]
    wanted = [info.hidden_size, info.vocab_size]
    if found != wanted:
        raise DraftwoodError(
            f"the MTP layers are of a target of width {found[0]} with {found[1]} tokens, and this "
            f"one has width {wanted[0]} and {wanted[1]} tokens: give the target's own checkpoint"
        )


def _check_stored(path: Path, layers: int, count: int) -> set[str]:
    """Check that a checkpoint has the layers, and not quantised; returns patterns of their names.

    Args:
        path: of the checkpoint.
        layers: of the target.
        count: MTP layers.
    """
    by_number = [rf"(^|\.)layers\.{layers + i}\." for i in range(count)]
    stored = _dtypes(path)
    for patterns in (by_number, [r"^mtp\."]):
        own = [[name for name in stored if re.search(each, name)] for each in patterns]
        if all(own):
            for name in [name for names in own for name in names]:
                if stored[name] not in _PLAIN:
                    raise DraftwoodError(
                        f"{name} holds {stored[name]} in {path}: quantised MTP layers are not "
                        "read; name a checkpoint that has them in bfloat16, head=PATH"
                    )
            return set(patterns)
    raise DraftwoodError(
        f"{path} lacks the MTP layers that its target has ({count}, mtp.* or from "
        f"model.layers.{layers} on): copies that were quantised or trained further often do; name "
        "the original checkpoint, head=PATH, or draft with a model or a head"
    )


def _dtypes(path: Path) -> Mapping[str, str]:
    """The dtypes of all tensors of a directory, by name, as safetensors spells them."""
    found: dict[str, str] = {}
    for file in sorted(path.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt") as opened:
                names: list[str] = opened.keys()
                found |= {name: opened.get_slice(name).get_dtype() for name in names}
        except (OSError, SafetensorError) as error:
            raise DraftwoodError(f"cannot read {file}: {error}") from error
    return found


def _head(
    layer: nn.Module, shared: Any, number: int, rotary: type[nn.Module], target: Target
) -> MtpHead:
    """A layer with a configuration and cache entries of its own.

    Args:
        layer: transformers'.
        shared: the configuration that all layers refer to.
        number: of the layer.
        rotary: class of its rotary embedding.
        target: whose embedding and ``lm_head`` are shared.
    """
    info, output = target.info, target.lm_head()
    if output is None:
        raise DraftwoodError("MTP layers share the target's lm_head, and this target has none")
    config = copy.deepcopy(shared)
    config.num_hidden_layers = 1
    for name in _BY_LAYER:
        kinds = getattr(config, name, None)
        if kinds:
            setattr(config, name, [kinds[number]])
    config.own_embedding = config.own_output = False
    config.draft_vocab_size = config.vocab_size
    config.taps = (info.layers,)
    for module in layer.modules():
        if getattr(module, "config", None) is shared:
            module.config = config
        if hasattr(module, "layer_idx"):
            module.layer_idx = 0  # type: ignore[assignment]
    head = MtpHead(config, layer, rotary(config).to(info.device))
    head.set_input_embeddings(target.embedding())
    head.share_output(output)
    head.train(mode=False)
    return head
