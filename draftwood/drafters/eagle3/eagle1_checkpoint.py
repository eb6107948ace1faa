"""Checkpoints of EAGLE-1 and EAGLE-2 heads (yuhuili's, and HASS's).

``fc.weight`` is ``[H, 2H]``, ``layers.0.*`` has no input norm, and there is neither a final norm
nor an ``lm_head``. ``embed_tokens`` is a copy of the target's, which is used instead.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from draftwood.drafters._config import check_layer, reading
from draftwood.drafters._directory import check_tensors
from draftwood.drafters.eagle3.config import LLAMA_FIELDS
from draftwood.drafters.eagle3.eagle1_head import Eagle1Config, Eagle1Head
from draftwood.errors import DraftwoodError
from draftwood.protocols import TargetInfo

_NOUN = "an EAGLE-1 or EAGLE-2 head"
_WHOSE = "the EAGLE-1 head's"
_ATTENTION = "layers.0.self_attn"


def is_eagle1(tensors: Mapping[str, torch.Tensor]) -> bool:
    """Whether a checkpoint's tensors are those of an EAGLE-1 head."""
    fused = tensors.get("fc.weight", tensors.get("model.fc.weight"))
    normed = any(name.endswith("hidden_norm.weight") for name in tensors)
    square = fused is not None and fused.dim() == 2 and fused.shape[1] == 2 * fused.shape[0]
    return square and not normed


def eagle1_head(
    tensors: Mapping[str, torch.Tensor],
    raw: Mapping[str, Any],
    target: TargetInfo,
    embedding: nn.Module | None,
    output: nn.Module | None,
) -> Eagle1Head:
    """The head of a checkpoint, in evaluation mode, on the target's device and in its dtype.

    Args:
        tensors: of the checkpoint.
        raw: its ``config.json``.
        target: the head's target.
        embedding: the target's.
        output: the target's ``lm_head``.

    Raises:
        DraftwoodError: the tensors are not those of a head for this target.
    """
    own = _canonical(tensors)
    config = _config(raw, own, target)
    with reading(_WHOSE):
        rotary = LlamaRotaryEmbedding(config)
        with torch.device("meta"):
            head = Eagle1Head(config)
    check_tensors(own, head.state_dict(), _NOUN)
    placed = {name: tensor.to(target.device, target.dtype) for name, tensor in own.items()}
    head.load_state_dict(placed, assign=True)
    head.rotary_emb = rotary.to(target.device)
    if embedding is not None:
        head.set_input_embeddings(embedding)
    if output is not None:
        head.share_output(output)
    head.train(mode=False)
    return head


def _canonical(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    bare = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    found = {
        name: tensor
        for name, tensor in bare.items()
        if name not in ("embed_tokens.weight", "lm_head.weight")
        and not name.endswith("rotary_emb.inv_freq")
    }
    weight = found.get(f"{_ATTENTION}.o_proj.weight")
    if f"{_ATTENTION}.q_proj.bias" in found and weight is not None:
        # As in Qwen2.
        found.setdefault(f"{_ATTENTION}.o_proj.bias", weight.new_zeros(len(weight)))
    return found


@reading(_WHOSE)
def _config(
    raw: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], target: TargetInfo
) -> Eagle1Config:
    width = tensors["fc.weight"].shape[0]
    if width != target.hidden_size:
        raise DraftwoodError(
            f"the EAGLE-1 head has width {width}, and the target {target.hidden_size}: give a head "
            "made for this target"
        )
    layers = {name.split(".")[1] for name in tensors if name.startswith("layers.")}
    if layers != {"0"}:
        raise DraftwoodError(
            f"the EAGLE-1 head has {len(layers)} layers, and one is read: give another head"
        )
    given = {name: raw[name] for name in LLAMA_FIELDS if raw.get(name) is not None}
    config = Eagle1Config(
        **{
            **given,
            "vocab_size": target.vocab_size,
            "num_hidden_layers": 1,
            "attention_bias": f"{_ATTENTION}.q_proj.bias" in tensors,
            "taps": (target.layers,),
            "fc_bias": "fc.bias" in tensors,
            "norms": "embedding_layernorm.weight" in tensors,
            "bos_token_id": None,
            "eos_token_id": None,
        }
    )
    check_layer(config, _WHOSE)
    return config
