"""Checkpoints of Gemma 4 assistants, as transformers writes them.

They hold ``pre_projection``, ``post_projection``, the layers under ``model.*`` without projections
of keys and values, and ``masked_embedding.*`` if ``use_ordered_embeddings``.
"""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from draftwood.drafters._config import reading
from draftwood.drafters._directory import check_tensors, located
from draftwood.drafters.gemma4.network import Assistant
from draftwood.errors import DraftwoodError
from draftwood.models.invalid import INVALID, reason_of
from draftwood.protocols import Target

_NOUN = "a Gemma 4 assistant"
_OUTPUT = "lm_head.weight"


def load_assistant(name: str, target: Target, dtype: torch.dtype) -> Assistant:
    """Load an assistant for a target, in evaluation mode and on its device.

    Raises:
        DraftwoodError: there is no such checkpoint, it is not complete, or it was made for another
            target; the message says what differs.
    """
    directory = located(name, _NOUN, ())
    try:
        config = AutoConfig.from_pretrained(directory.path, trust_remote_code=False)
    except (OSError, *INVALID) as error:
        raise DraftwoodError(
            f"the config.json of {directory.path} cannot be used: {reason_of(error)}"
        ) from error
    if not hasattr(config, "backbone_hidden_size"):
        raise DraftwoodError(
            f"{directory.path} holds a model of type {config.model_type!r}; give {_NOUN}"
        )
    layers = _layers(config, target)
    tensors = directory.tensors()
    with reading("the assistant's"):
        model = built(config, dtype)
    expected = dict(model.state_dict())
    if config.tie_word_embeddings:
        tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
        assert tied, "transformers ties them"
        for each in (tensors, expected):
            each.pop(_OUTPUT, None)
    check_tensors(tensors, expected, _NOUN)
    model.load_state_dict(tensors, strict=False)
    assistant = Assistant(model, layers, target.embedding()).to(target.info.device)
    assistant.train(mode=False)
    return assistant


def built(config: Any, dtype: torch.dtype) -> Any:
    """An assistant of transformers, with random weights.

    Releases of transformers (5.23, not 5.17) refuse a model all of whose layers read keys that none
    of them stores. So layers that store some come first, and are taken off again.
    """
    auto: Any = AutoModelForCausalLM
    whole = copy.deepcopy(config)
    text = whole.get_text_config()
    kinds, fields = list(text.layer_types), text.to_dict()
    first = list(dict.fromkeys(kinds))
    own = {int(place): each for place, each in (fields.get("per_layer_config") or {}).items()}
    of_all = [own.get(place, {}) for place in (*map(kinds.index, first), *range(len(kinds)))]
    changed = {
        "num_hidden_layers": len(of_all),
        "num_kv_shared_layers": len(kinds),
        "layer_types": [*first, *kinds],
        "per_layer_config": {place: each for place, each in enumerate(of_all) if each},
    }
    whole.text_config = type(text)(**fields | changed)
    model = auto.from_config(whole, dtype=dtype, trust_remote_code=False)
    inner = model.model
    inner.layers = inner.layers[len(first) :]
    inner.config.num_hidden_layers, inner.config.layer_types = len(kinds), kinds
    return model


def _layers(config: Any, target: Target) -> Mapping[str, int]:
    """The target's last layer of each kind that the assistant has.

    Raises:
        DraftwoodError: the sizes of the target are not those that the assistant was made for.
    """
    info, text = target.info, config.get_text_config()
    sizes = [config.backbone_hidden_size, text.vocab_size]
    wanted = [info.hidden_size, info.vocab_size]
    if sizes != wanted:
        raise DraftwoodError(
            f"the assistant was made for a target of width {sizes[0]} with {sizes[1]} tokens, and "
            f"this one has width {wanted[0]} and {wanted[1]} tokens; give one made for this target"
        )
    kinds = list(info.config.get("layer_types") or ())
    found = {kind: place for place, kind in enumerate(kinds)}
    widths = {
        kind: text.per_layer_config[place].head_dim for place, kind in enumerate(text.layer_types)
    }
    slot = target.open(1)
    try:
        for kind, width in widths.items():
            if kind not in found:
                raise DraftwoodError(
                    f"the assistant has layers of type {kind!r}, and this target has none; give "
                    "one made for this target"
                )
            keys, _ = target.keys_values([slot], found[kind])
            if keys.shape[3] != width or text.num_attention_heads % keys.shape[1]:
                raise DraftwoodError(
                    f"the assistant attends with {text.num_attention_heads} heads of width {width} "
                    f"in layers of type {kind!r}, and this target has {keys.shape[1]} key heads of "
                    f"width {keys.shape[3]}; give one made for this target"
                )
    finally:
        target.release(slot)
    return {kind: found[kind] for kind in widths}
