"""Prompts in any form as the tensors that ``generate`` takes.

Texts are tokenised one by one and padded here, on the left, so the tokenizer needs no pad token.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from numbers import Integral
from typing import Any, TypeAlias

import torch
from transformers import PreTrainedTokenizerBase

from draftwood.errors import DraftwoodError, integers

Inputs: TypeAlias = (
    str
    | Sequence[str]
    | Sequence[int]
    | Sequence[Sequence[int]]
    | torch.Tensor
    | Sequence[torch.Tensor]
    | Mapping[str, Any]
)
"""Text, token ids, a list of either, or a tokenizer's output."""

_FORMS = "text, token ids, a list of either, or what the tokenizer returned"


def arguments(
    inputs: Inputs | None,
    given: Mapping[str, Any],
    tokenizer: PreTrainedTokenizerBase | None,
    pad: int,
    device: torch.device,
) -> dict[str, Any]:
    """``generate``'s keyword arguments, its prompt among them on the model's device.

    Args:
        inputs: the prompts, or None if they are in ``given``, as after ``**inputs``.
        given: the caller's keyword arguments.
        tokenizer: needed for text.
        pad: token to the left of a shorter prompt; the model never sees it.
        device: the model's.

    Raises:
        DraftwoodError: there is no prompt, or two, or one that is neither text nor token ids.
    """
    kwargs = dict(given)
    prompts: Any = inputs
    if isinstance(inputs, Mapping):
        prompts, kwargs = None, {**inputs, **kwargs}
    if "input_ids" in kwargs:
        if prompts is not None:
            raise DraftwoodError("the prompt is given twice, as inputs and as input_ids: give one")
        prompts = kwargs.pop("input_ids")
    if prompts is None:
        if kwargs.get("inputs_embeds") is None:
            raise DraftwoodError(f"there is no prompt: give {_FORMS}")
        return kwargs  # refused by name later, like all unsupported arguments
    mask = kwargs.pop("attention_mask", None)
    if isinstance(prompts, torch.Tensor):
        kwargs["input_ids"] = _tensor(prompts).to(device)
    else:
        rows = _rows(prompts, tokenizer)
        width = max(map(len, rows))
        kwargs["input_ids"] = torch.tensor(_padded(rows, width, pad), device=device)
        mask = [[1] * len(row) for row in rows] if mask is None else mask
        if not isinstance(mask, torch.Tensor):
            mask = _padded(_mask_rows(mask, rows), width, 0)
    if mask is not None:
        mask = torch.as_tensor(mask, device=device)
        kwargs["attention_mask"] = mask[None] if mask.dim() == 1 else mask
    return kwargs


def _padded(rows: Sequence[Sequence[int]], width: int, value: int) -> list[list[int]]:
    """Rows of one width, with a value to the left of shorter ones."""
    return [[value] * (width - len(row)) + [*row] for row in rows]


def _mask_rows(mask: Any, rows: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """The masks of rows, each as long as its row."""
    given = [mask] if len(rows) == 1 and len(mask) == len(rows[0]) else list(mask)
    found = [part.tolist() if isinstance(part, torch.Tensor) else part for part in given]
    lengths = [len(part) if isinstance(part, Sequence) else 0 for part in found]
    if lengths != [*map(len, rows)]:
        raise DraftwoodError(
            f"attention_mask has rows of {lengths} numbers and the prompts have "
            f"{[*map(len, rows)]} tokens: give one number for each token, or leave it out"
        )
    return found


def pad_token(*sources: Any) -> int | None:
    """The token to pad with: the first pad token of the sources, else their first eos token.

    Args:
        sources: configs, tokenizers or dicts of arguments.
    """
    for name in ("pad_token_id", "eos_token_id"):
        for source in sources:
            found = source.get(name) if isinstance(source, dict) else getattr(source, name, None)
            if found is not None:
                return int(torch.as_tensor(found, device="cpu").reshape(-1)[0])
    return None


def with_pad_token(
    given: Mapping[str, Any], model_config: Any, tokenizer: PreTrainedTokenizerBase | None
) -> dict[str, Any]:
    """``generate``'s keyword arguments, with the tokenizer's pad token if nothing else names one.

    Args:
        given: what :func:`arguments` made.
        model_config: the model's generation config.
        tokenizer: the model's, if known.
    """
    found, config = dict(given), given.get("generation_config")
    pad = getattr(tokenizer, "pad_token_id", None)
    others = [given.get("pad_token_id"), *(_pad_of(each) for each in (config, model_config))]
    if pad is None or any(each is not None for each in others):
        return found
    if config is None:
        found["pad_token_id"] = pad
    else:
        # transformers warns of a setting beside a config.
        found["generation_config"] = config = copy(config)
        config.pad_token_id = pad
    if "attention_mask" not in found and "input_ids" in found:
        # generate would take such tokens of a prompt for padding.
        found["attention_mask"] = torch.ones_like(found["input_ids"])
    return found


def _pad_of(config: Any) -> int | None:
    found: int | None = getattr(config, "pad_token_id", None)
    return found


def _tensor(ids: torch.Tensor) -> torch.Tensor:
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise DraftwoodError(
            f"token ids are integers, but this tensor is {ids.dtype}: give an integer tensor"
        )
    if ids.dim() not in {1, 2} or not ids.numel():
        raise DraftwoodError(
            f"token ids have the shape [L] or [B, L] with at least one token, but this tensor has "
            f"{list(ids.shape)}"
        )
    return (ids[None] if ids.dim() == 1 else ids).long()


def _rows(prompts: Any, tokenizer: PreTrainedTokenizerBase | None) -> list[list[int]]:
    if isinstance(prompts, str):
        prompts = [prompts]
    if not isinstance(prompts, Iterable):
        raise DraftwoodError(f"a prompt cannot be {type(prompts).__name__}: give {_FORMS}")
    parts = [part.tolist() if isinstance(part, torch.Tensor) else part for part in prompts]
    if all(isinstance(part, Integral | float) for part in parts):
        parts = [parts]
    if all(isinstance(part, str) for part in parts):
        if tokenizer is None:
            raise DraftwoodError("a prompt that is text needs a tokenizer: give one, or token ids")
        parts = [tokenizer(text)["input_ids"] for text in parts]
    rows = [list(integers(f"prompt {i}", part)) for i, part in enumerate(parts)]
    if not all(rows):
        raise DraftwoodError(f"prompt {rows.index([])} is empty: give at least one token")
    return rows
