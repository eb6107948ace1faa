"""The mask that a model or head reads in place of drafted tokens, as its configuration names it.

PARD's models have a ``pard_token``, P-EAGLE's heads a ``ptd_token_id`` or, in the layout of
speculators, a ``mask_token_id``.
"""

from collections.abc import Mapping
from typing import Any

from draftwood.errors import DraftwoodError

_NAMES = ("pard_token", "ptd_token_id", "mask_token_id")


def reads_masks(config: Mapping[str, Any]) -> bool:
    """Whether a ``config.json`` is of a model or head that was trained to read masks."""
    kind = config.get("speculators_model_type")
    if kind is not None:
        return bool(kind == "peagle")
    # Block drafters have a mask_token_id, too.
    named = any(config.get(name) is not None for name in _NAMES[:-1])
    return named or bool(config.get("parallel_drafting"))


def mask_token(config: Mapping[str, Any], tokens: int, noun: str, advice: str) -> int:
    """The id of the mask.

    Args:
        config: of the model or head.
        tokens: that it can read.
        noun: what it is, for messages: ``"the draft model"``.
        advice: what to give instead.

    Raises:
        DraftwoodError: none is named, or it cannot be read.
    """
    found = next((config[name] for name in _NAMES if config.get(name) is not None), None)
    if found is None:
        raise DraftwoodError(
            f"{noun}'s config.json names no mask token ({', '.join(_NAMES[:-1])} or {_NAMES[-1]}), "
            f"so that it reads no masks: {advice}"
        )
    if not isinstance(found, int) or not 0 <= found < tokens:
        raise DraftwoodError(
            f"{noun}'s mask token is {found!r}, which is none of {tokens} tokens: {advice}"
        )
    return found
