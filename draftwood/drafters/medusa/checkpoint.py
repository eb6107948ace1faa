"""Checkpoints of Medusa heads, in the layouts in which they are published.

* The original one (FasterDecoding): ``medusa_lm_head.pt`` or ``medusa_lm_head.safetensors`` with
  ``{i}.{j}.linear.weight`` and ``.bias`` for block j of head i, and ``{i}.{n}.weight`` for its
  output. Heads without an output use the target's ``lm_head``.
* The same under ``medusa_head.`` among the weights of a whole model (Medusa-2). The heads fit that
  model only, which was trained with them.
* vLLM's: ``blocks.{i}.layers.{j}.weight`` (``.bias``), ``lm_heads.{i}.weight`` or one
  ``lm_head.weight``, and ``token_map``, the target's ids of a reduced vocabulary. Draftwood's own
  heads are of this layout. Without an output, they use these rows of the target's ``lm_head``.

The number of heads is that of the tensors: configurations name fewer.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from draftwood.drafters._directory import CONFIG, PICKLED, SAFE, add_biases, check_tensors, located
from draftwood.drafters.medusa.heads import MedusaHeads
from draftwood.errors import DraftwoodError
from draftwood.protocols import Target

_NOUN = "Medusa heads"
_SAFE = "medusa_lm_head.safetensors"
_PICKLED = "medusa_lm_head.pt"
_PREFIX = re.compile(r"(?:model\.)?medusa_heads?\.")
_NAMES = (
    (re.compile(r"(\d+)\.(\d+)\.linear\.(weight|bias)"), r"blocks.\1.\2.\3"),
    (re.compile(r"blocks\.(\d+)\.layers\.(\d+)\.(weight|bias)"), r"blocks.\1.\2.\3"),
    (re.compile(r"(\d+)\.\d+\.weight"), r"lm_heads.\1.weight"),
    (re.compile(r"lm_heads\.(\d+)\.weight"), r"lm_heads.\1.weight"),
    (re.compile(r"lm_head\.weight"), "lm_heads.0.weight"),
    (re.compile("token_map"), "token_ids"),
)


def load_medusa(name: str, target: Target, dtype: torch.dtype) -> MedusaHeads:
    """Load Medusa heads for a target, in evaluation mode and on its device.

    Raises:
        DraftwoodError: there is no such checkpoint, or its tensors are not those of Medusa heads
            for this target; the message names the tensor.
    """
    directory = located(name, _NOUN, (PICKLED, _PICKLED))
    raw = _bare(directory.tensors((_SAFE, SAFE), (_PICKLED, PICKLED), _PREFIX))
    tensors = _canonical(raw)
    common = "lm_head.weight" in raw
    info = target.info
    if "token_ids" in tensors and "lm_heads.0.weight" not in tensors:
        tensors["lm_heads.0.weight"] = _rows(_output(target), tensors["token_ids"])
        common = True
    heads = _empty(tensors, info.hidden_size, common)
    _complete(tensors, heads)
    check_tensors(tensors, heads.state_dict(), _NOUN)
    placed = {
        key: tensor.to(info.device, dtype if tensor.is_floating_point() else torch.int64)
        for key, tensor in tensors.items()
    }
    heads.load_state_dict(placed, assign=True)
    if not len(heads.lm_heads):
        heads.share_output(_output(target))
    heads.train(mode=False)
    return heads


def save_medusa(heads: MedusaHeads, directory: Path) -> Path:
    """Write heads without their output, in vLLM's layout; returns ``directory``.

    :func:`load_medusa` takes the output from the target's ``lm_head``.
    """
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {"token_map": heads.token_ids.cpu()}
    for name, tensor in heads.blocks.state_dict().items():
        head, layer, kind = name.split(".")
        tensors[f"blocks.{head}.layers.{layer}.{kind}"] = tensor.contiguous().cpu()
    save_file(tensors, directory / SAFE, metadata={"format": "pt"})
    first: nn.Linear = heads.blocks[0][0]  # type: ignore[index]
    fields = {
        "model_type": "medusa",
        "medusa_num_heads": len(heads.blocks),
        "medusa_num_layers": len(heads.blocks[0]),  # type: ignore[arg-type]
        "hidden_size": first.in_features,
        "truncated_vocab_size": len(heads.token_ids),
        "torch_dtype": str(first.weight.dtype).removeprefix("torch."),
    }
    (directory / CONFIG).write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    return directory


def _bare(stored: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The heads' tensors without the prefix that they have in a whole model."""
    prefixed = {name: tensor for name, tensor in stored.items() if _PREFIX.match(name)}
    return {_PREFIX.sub("", name): tensor for name, tensor in (prefixed or stored).items()}


def _canonical(raw: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors under the names of :class:`MedusaHeads`."""
    found: dict[str, torch.Tensor] = {}
    unknown = []
    for name, tensor in raw.items():
        matches = ((pattern.fullmatch(name), new) for pattern, new in _NAMES)
        spelt = next((match.expand(new) for match, new in matches if match), None)
        if spelt is None:
            unknown.append(name)
        else:
            found[spelt] = tensor
    if unknown or not any(name.startswith("blocks.") for name in found):
        what = ", ".join(sorted(unknown)[:3]) or "no residual block"
        raise DraftwoodError(
            f"the checkpoint has {what}, which is not of Medusa heads; give {_NOUN} in the layout "
            "of FasterDecoding or of vLLM"
        )
    return found


def _empty(tensors: Mapping[str, torch.Tensor], width: int, common: bool) -> MedusaHeads:
    """Heads of the checkpoint's sizes, without weights."""
    blocks = [name.split(".") for name in tensors if name.startswith("blocks.")]
    heads = 1 + max(int(name[1]) for name in blocks)
    layers = 1 + max(int(name[2]) for name in blocks)
    output = tensors.get("lm_heads.0.weight")
    with torch.device("meta"):
        return MedusaHeads(
            heads, layers, width, None if output is None else len(output), common=common
        )


def _complete(tensors: dict[str, torch.Tensor], heads: MedusaHeads) -> None:
    """Add biases, which some checkpoints lack, and ids that are the target's own."""
    add_biases(tensors, [name for name in heads.state_dict() if name.endswith(".bias")])
    tensors.setdefault("token_ids", torch.arange(len(heads.token_ids)))


def _output(target: Target) -> nn.Module:
    found = target.lm_head()
    if found is None:
        raise DraftwoodError(
            "the Medusa heads have no outputs of their own, and the target has no lm_head to "
            "share; give heads with outputs"
        )
    return found


def _rows(output: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """The rows of the target's ``lm_head`` for some tokens."""
    table = torch.as_tensor(output.weight).detach()
    if ids.dim() != 1 or int(ids.min()) < 0 or int(ids.max()) >= len(table):
        raise DraftwoodError(
            f"token_map names tokens outside the target's vocabulary of {len(table)}; give "
            f"{_NOUN} made for this target"
        )
    return table[ids.to(table.device, torch.int64)]
