"""EAGLE-3 and P-EAGLE checkpoints: reads the public layouts, checks tensors, writes the original.

The first layer is named ``midlayer.*`` (original) or ``layers.0.*`` (speculators), further layers
``layers.1.*`` and so on, with or without the prefix ``model.``. The tensors' names decide the
layout, not ``config.json``, because converted checkpoints mix them. ``t2d`` is computed from
``d2t``: published ones may be empty, padded or another model's. Files are ``model.safetensors``
(also in shards) or a ``pytorch_model.bin`` that ``torch.load(weights_only=True)`` accepts, so no
file can run code. Expected shapes come from a head built on the meta device.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from draftwood.drafters._config import reading
from draftwood.drafters._directory import CONFIG, SAFE, located
from draftwood.drafters._head import AutoregressiveHead
from draftwood.drafters.eagle3.config import Eagle3Config, Stored, read_config, write_config
from draftwood.drafters.eagle3.eagle1_checkpoint import eagle1_head, is_eagle1
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.drafters.eagle3.names import canonical
from draftwood.drafters.eagle3.speculators import (
    EAGLE1,
    as_eagle1,
    is_eagle1_of_speculators,
    refuse_other_types,
)
from draftwood.errors import DraftwoodError
from draftwood.protocols import Target, TargetInfo

_EMBEDDING = "embed_tokens.weight"
_OUTPUT = "lm_head.weight"
_MASK = "mask_hidden"
_ATTENTION = "midlayer.self_attn"


def load_any_head(name: str, target: Target, dtype: torch.dtype) -> AutoregressiveHead:
    """Load a head of EAGLE-1, EAGLE-2, EAGLE-3 or P-EAGLE, as :func:`load_head` does.

    Its tensors tell which it is, or its ``speculators_model_type``. One without an ``lm_head`` of
    its own has the target's dtype.

    Raises:
        DraftwoodError: see :func:`load_head`.
    """
    directory = located(name, "an EAGLE-3 head")
    raw: Mapping[str, Any] = directory.config()
    refuse_other_types(raw, EAGLE1)
    tensors, info = directory.tensors(), target.info
    embedding, output = target.embedding(), target.lm_head()
    if is_eagle1_of_speculators(raw):
        raw, tensors = as_eagle1(raw, tensors)
    if is_eagle1(tensors):
        return eagle1_head(tensors, raw, info, embedding, output)
    return _made(tensors, raw, info, embedding, output, dtype)


def load_head(
    name: str | Path,
    target: TargetInfo,
    embedding: nn.Module | None = None,
    output: nn.Module | None = None,
    dtype: torch.dtype | None = None,
) -> Eagle3Head:
    """Load an EAGLE-3 head for a target, in evaluation mode and on its device.

    Args:
        name: a directory, or else a hub id.
        target: the head's target; the checkpoint must have its sizes.
        embedding: the target's input embedding, used if the checkpoint has none. Without it, call
            :meth:`Eagle3Head.set_input_embeddings` afterwards.
        output: the target's ``lm_head``, likewise; :meth:`Eagle3Head.share_output`.
        dtype: of its weights; None, or if the head has no ``lm_head`` of its own: the target's.

    Raises:
        DraftwoodError: there is no such checkpoint, or it is no EAGLE-3 head for this target; the
            message names the tensor and both shapes.
    """
    directory = located(str(name), "an EAGLE-3 head")
    raw = directory.config()
    refuse_other_types(raw)
    return _made(directory.tensors(), raw, target, embedding, output, dtype)


def _made(
    stored: Mapping[str, torch.Tensor],
    raw: Mapping[str, Any],
    target: TargetInfo,
    embedding: nn.Module | None,
    output: nn.Module | None,
    dtype: torch.dtype | None,
) -> Eagle3Head:
    """The head of some tensors and the content of a ``config.json``; see :func:`load_head`."""
    tensors = canonical(stored)
    _fit_output(tensors, target.vocab_size)
    _complete(tensors, raw, output)
    _flatten_mask(tensors)
    config = read_config(raw, target, _stored(tensors))
    with reading("the head's"):
        rotary = LlamaRotaryEmbedding(config)
        with torch.device("meta"):
            head = Eagle3Head(config)
    _leave_out(tensors, config)
    _fit_embedding(tensors, config)
    _check_tensors(tensors, head, same_ids=raw.get("draft_vocab_size") is None)
    tensors |= _vocabulary(tensors, config)
    dtype = dtype if dtype is not None and config.own_output else target.dtype
    placed = {
        key: tensor.to(target.device, dtype if tensor.is_floating_point() else tensor.dtype)
        for key, tensor in tensors.items()
    }
    head.load_state_dict(placed, assign=True)
    head.rotary_emb = rotary.to(target.device)
    if embedding is not None and not config.own_embedding:
        head.set_input_embeddings(embedding)
    if output is not None and not config.own_output:
        head.share_output(output)
    head.train(mode=False)
    return head


def save_head(head: Eagle3Head, directory: Path, *, tied: bool = False) -> Path:
    """Write a head in the original layout; returns ``directory``, which :func:`load_head` reads.

    Args:
        head: in evaluation or training mode.
        directory: created if there is none.
        tied: leave out ``lm_head``, whose rows are then the target's.
    """
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.contiguous().cpu()
        for name, tensor in head.state_dict().items()
        if not (tied and name == _OUTPUT)
    }
    save_file(tensors, directory / SAFE, metadata={"format": "pt"})
    fields = write_config(head.config) | {"torch_dtype": str(head.dtype).removeprefix("torch.")}
    (directory / CONFIG).write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    return directory


def _stored(tensors: Mapping[str, torch.Tensor]) -> Stored:
    """The head's variant and sizes, as far as the tensors show them."""
    sized = tensors.get("d2t", tensors.get(_OUTPUT))
    normed = tensors.get(f"{_ATTENTION}.q_norm.weight")
    layers = {name.split(".")[1] for name in tensors if name.startswith("layers.")}
    return Stored(
        own_embedding=_EMBEDDING in tensors,
        # A head with fewer outputs than the target has tokens needs rows of its own.
        own_output=_OUTPUT in tensors or "d2t" in tensors,
        draft_vocab_size=None if sized is None else len(sized),
        layers=1 + len(layers),
        head_dim=None if normed is None else len(normed),
        attention_bias=any(
            name.startswith(_ATTENTION) and name.endswith(".bias") for name in tensors
        ),
        qk_norm=normed is not None,
        fc_bias="fc.bias" in tensors,
        input_norm="input_norm.weight" in tensors,
        fc_norm=any(name.startswith("fc_norm.") for name in tensors),
        mask=_MASK in tensors,
    )


def _flatten_mask(tensors: dict[str, torch.Tensor]) -> None:
    """Give the masks' features their usual shape; some checkpoints have another."""
    found = tensors.get(_MASK)
    if found is not None and found.dim() and found.numel() == found.shape[-1]:
        tensors[_MASK] = found.reshape(1, 1, -1)


def _fit_output(tensors: dict[str, torch.Tensor], rows: int) -> None:
    """Cut off the padding of an ``lm_head`` over the target's tokens."""
    table = tensors.get(_OUTPUT)
    if table is not None and "d2t" not in tensors:
        tensors[_OUTPUT] = table[:rows]


def _fit_embedding(tensors: dict[str, torch.Tensor], config: Eagle3Config) -> None:
    """Give the embedding as many rows as the target has tokens.

    Added rows are zero: padding, or tokens that the head was not trained on.
    """
    table = tensors.get(_EMBEDDING)
    mask = config.mask_token
    if table is not None and mask is not None and mask >= len(table):
        raise DraftwoodError(
            f"the mask token {mask} has no row in embed_tokens.weight of {len(table)}: give a "
            "complete P-EAGLE head"
        )
    if table is not None and table.dim() == 2 and table.shape[1] == config.hidden_size:
        added = max(0, config.vocab_size - len(table))
        tensors[_EMBEDDING] = functional.pad(table[: config.vocab_size], (0, 0, 0, added))


def _complete(
    tensors: dict[str, torch.Tensor], raw: Mapping[str, Any], output: nn.Module | None
) -> None:
    """Add tensors that are shared with another table or are all zero.

    A head over all the target's tokens without an ``lm_head`` gets none here: it shares the
    target's (:meth:`Eagle3Head.share_output`).
    """
    if f"{_ATTENTION}.q_proj.bias" in tensors and f"{_ATTENTION}.o_proj.bias" not in tensors:
        # As in Qwen2; the other layers are alike.
        for name in [name for name in tensors if name.endswith("self_attn.o_proj.weight")]:
            tensors[name.replace("weight", "bias")] = tensors[name].new_zeros(len(tensors[name]))
    if _OUTPUT in tensors:
        return
    table = None
    if raw.get("tie_word_embeddings") and _EMBEDDING in tensors:
        table = tensors[_EMBEDDING]
    elif "d2t" in tensors and output is not None:
        table = torch.as_tensor(output.weight).detach().cpu()
    if table is not None and "d2t" in tensors:
        ids = torch.arange(len(tensors["d2t"])) + tensors["d2t"].long()
        if len(ids) and int(ids.min()) >= 0 and int(ids.max()) < len(table):
            tensors[_OUTPUT] = table[ids]
    elif table is not None:
        tensors[_OUTPUT] = table


def _leave_out(tensors: dict[str, torch.Tensor], config: Eagle3Config) -> None:
    """Drop tensors that this config does not use."""
    unused = ["t2d"]
    unused += [] if config.fuse else ["fc.", "input_norm.", "fc_norm."]
    unused += [] if config.norm_before_fc else ["input_norm."]
    unused += [] if config.fc_norm else ["fc_norm."]
    for name in [name for name in tensors if name.startswith(tuple(unused))]:
        del tensors[name]


def _check_tensors(
    tensors: Mapping[str, torch.Tensor], head: Eagle3Head, *, same_ids: bool
) -> None:
    """Check all tensors against the head; ``same_ids``: without ``d2t``, ids are the target's."""
    expected = head.state_dict()
    unknown = sorted(tensors.keys() - expected.keys())
    if unknown:
        raise DraftwoodError(
            f"the checkpoint has tensors that an EAGLE-3 head has not: {', '.join(unknown)}; give "
            "an EAGLE-3 head of a supported variant"
        )
    implied = {"t2d"}
    if same_ids or head.config.draft_vocab_size == head.config.vocab_size:
        implied.add("d2t")
    missing = sorted(expected.keys() - tensors.keys() - implied)
    if missing:
        raise DraftwoodError(
            f"the checkpoint lacks {', '.join(missing)}; give a complete EAGLE-3 head"
        )
    for name, tensor in tensors.items():
        found, wanted = list(tensor.shape), list(expected[name].shape)
        if name == "fc.weight" and found[:1] == wanted[:1] and len(found) == 2:
            _check_features(found, wanted, head.config)
        if found != wanted:
            raise DraftwoodError(
                f"{name} is {found} in the checkpoint, but its config.json and the target call for "
                f"{wanted}; give a head made for this target"
            )
        if not _same_kind(tensor.dtype, expected[name].dtype):
            kind = str(expected[name].dtype).removeprefix("torch.")
            raise DraftwoodError(
                f"{name} holds {tensor.dtype} in the checkpoint instead of {kind}; give an EAGLE-3 "
                "head, not quantised"
            )


def _check_features(found: list[int], wanted: list[int], config: Eagle3Config) -> None:
    width, left = divmod(found[1], len(config.taps))
    if found != wanted and not left:
        raise DraftwoodError(
            f"fc.weight is {found} in the checkpoint, but its config.json and the target call for "
            f"{wanted}: the head reads {len(config.taps)} hidden states of width {width}, and the "
            f"target's have {config.target_hidden_size}; it was made for another target"
        )


def _same_kind(found: torch.dtype, wanted: torch.dtype) -> bool:
    """Whether both are floating-point, both bool, or both integer dtypes."""
    if found.is_floating_point or wanted.is_floating_point:
        return found.is_floating_point == wanted.is_floating_point
    return (found == torch.bool) == (wanted == torch.bool)


def _vocabulary(
    tensors: Mapping[str, torch.Tensor], config: Eagle3Config
) -> dict[str, torch.Tensor]:
    """``d2t``, checked, zero if absent, and the ``t2d`` computed from it."""
    rows, drafted = config.vocab_size, torch.arange(config.draft_vocab_size)
    d2t = tensors["d2t"].long() if "d2t" in tensors else torch.zeros_like(drafted)
    ids = drafted + d2t
    wrong = torch.nonzero((ids < 0) | (ids >= rows)).flatten().tolist()
    if wrong:
        raise DraftwoodError(
            f"d2t maps draft id {wrong[0]} to {int(ids[wrong[0]])}, outside the target's "
            f"vocabulary of {rows}; give a head made for this target"
        )
    counts = torch.bincount(ids, minlength=rows)
    if counts.max() > 1:
        raise DraftwoodError(
            f"d2t maps two draft ids to token {int(counts.argmax())}; give a head whose d2t is "
            "one to one"
        )
    return {"d2t": d2t, "t2d": counts > 0}
