"""Checkpoints of DFlash, DFlash2 and DSpark drafters.

:mod:`draftwood.drafters.dflash.config` names the layouts. DSpark's confidence head is not read: it
estimates for a slot the chance that its token is accepted, whichever token that is, and policies
compare the candidates of a node, by their own probabilities.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from draftwood.drafters._config import reading
from draftwood.drafters._directory import CONFIG, SAFE, check_tensors, located
from draftwood.drafters.dflash.config import NOUN, WHOSE, DFlashConfig, read_config
from draftwood.drafters.dflash.network import DFlashNetwork, Stored
from draftwood.errors import DraftwoodError
from draftwood.protocols import Target

_PREFIXES = (
    ("model.", ""),
    ("midlayer.", "layers.0."),
    ("logit_head.", ""),
    ("encoder.fc.", "fc."),
    ("encoder.output_norm_enc.", "hidden_norm."),
)
"""Other spellings of the tensors' names, among them those of transformers' own module."""

_UNUSED = (
    "verifier_lm_head.weight",
    "verifier_norm.weight",
    "t2d",
    "confidence_head.proj.weight",
    "confidence_head.proj.bias",
)
_EMBEDDING, _OUTPUT, _MASK = "embed_tokens.weight", "lm_head.weight", "mask_embedding"


def load_dflash(name: str, target: Target, dtype: torch.dtype) -> DFlashNetwork:
    """Load a DFlash drafter for a target, in evaluation mode and on its device.

    Raises:
        DraftwoodError: there is no such checkpoint, or it is no DFlash drafter for this target.
    """
    directory, info = located(name, NOUN), target.info
    config = read_config(directory.config(), info)
    tensors = _canonical(directory.tensors())
    if config.selector is not None and "d2t" in tensors:
        raise DraftwoodError(
            "the DFlash2 drafter has a reduced vocabulary (d2t), which its selector does not fit: "
            "give a drafter of all tokens"
        )
    _reduce(tensors, target)
    with reading(WHOSE):
        rotary = Qwen3RotaryEmbedding(config.layers)
        network = _empty(config, tensors, info.vocab_size)
    tensors.setdefault("token_ids", torch.arange(len(network.token_ids)))
    check_tensors(tensors, network.state_dict(), NOUN)
    _check_mask(tensors, config.mask_token, target.embedding())
    placed = {
        key: tensor.to(info.device, dtype if tensor.is_floating_point() else torch.int64)
        for key, tensor in tensors.items()
    }
    network.load_state_dict(placed, assign=True)
    network.rotary_emb = rotary.to(info.device)
    output = target.lm_head()
    if _OUTPUT not in tensors and output is None:
        raise DraftwoodError(
            f"{NOUN} without an lm_head needs the target's, and this target has none: give a "
            "drafter with its own"
        )
    network.share(target.embedding(), output, info.vocab_size)
    network.train(mode=False)
    return network


def save_dflash(
    network: DFlashNetwork, raw: Mapping[str, Any], directory: Path, dtype: torch.dtype
) -> Path:
    """Write a network without its output, in z-lab's layout; returns ``directory``.

    :func:`load_dflash` takes the output from the target's ``lm_head``, whose rows ``d2t`` names.

    Args:
        network: in any dtype.
        raw: the content of ``config.json``.
        directory: created if there is none.
        dtype: of the weights written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.to("cpu", dtype).contiguous()
        for name, tensor in network.state_dict().items()
        if name not in (_OUTPUT, "token_ids")
    }
    ids = network.token_ids.cpu()
    tensors["d2t"] = ids - torch.arange(len(ids))
    save_file(tensors, directory / SAFE, metadata={"format": "pt"})
    fields = {**raw, "draft_vocab_size": len(ids), "dtype": str(dtype).removeprefix("torch.")}
    (directory / CONFIG).write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    return directory


def _canonical(raw: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    found = {}
    for name, tensor in raw.items():
        spelt = name
        for prefix, new in _PREFIXES:
            if spelt.startswith(prefix):
                spelt = new + spelt.removeprefix(prefix)
        if spelt.endswith("_codebook.weight"):
            spelt = spelt.removesuffix(".weight")
        if spelt not in _UNUSED:
            found[spelt] = tensor
    return found


def _reduce(tensors: dict[str, torch.Tensor], target: Target) -> None:
    """Replace ``d2t`` by the target's ids, and add the output rows that a checkpoint leaves out."""
    shifts = tensors.pop("d2t", None)
    if shifts is None:
        return
    ids = torch.arange(len(shifts)) + shifts.long()
    if not len(ids) or int(ids.min()) < 0 or int(ids.max()) >= target.info.vocab_size:
        raise DraftwoodError(
            f"d2t names tokens outside the target's vocabulary of {target.info.vocab_size}; give "
            f"{NOUN} made for this target"
        )
    tensors["token_ids"] = ids
    output = target.lm_head()
    if _OUTPUT not in tensors and output is not None:
        table = torch.as_tensor(output.weight).detach()
        tensors[_OUTPUT] = table[ids.to(table.device)]


def _empty(
    config: DFlashConfig, tensors: Mapping[str, torch.Tensor], vocabulary: int
) -> DFlashNetwork:
    """The network without weights, with the parts that the checkpoint has."""
    output, embedding = tensors.get(_OUTPUT), tensors.get(_EMBEDDING)
    read = tensors.get("markov_head.markov_w1.weight", ())
    selected = tensors.get("candidate_selector.predecessor_codebook", ())
    stored = Stored(
        outputs=None if output is None else len(output),
        embeddings=None if embedding is None else len(embedding),
        mask=_MASK in tensors,
        qk_norm="layers.0.self_attn.q_norm.weight" in tensors,
        # Rows beyond the target's tokens are padding.
        markov=(max(len(read), vocabulary), vocabulary if output is None else len(output)),
        codebook=max(len(selected), vocabulary),
    )
    with torch.device("meta"):
        return DFlashNetwork(config, stored)


def _check_mask(tensors: Mapping[str, torch.Tensor], mask: int, embedding: nn.Module) -> None:
    """Refuse a mask token without a row: ids of masks lie in the padding of a target's table."""
    table = tensors.get(_EMBEDDING, embedding.weight)
    rows = len(table)  # type: ignore[arg-type]
    if _MASK not in tensors and not 0 <= mask < rows:
        raise DraftwoodError(
            f"the mask token {mask} has no row in the target's embedding of {rows}: give "
            f"{NOUN} made for this target, with the target's padded vocabulary"
        )
