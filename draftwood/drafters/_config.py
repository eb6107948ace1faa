"""Reads the ``config.json`` of a drafter, whose values may be of any type."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from transformers.activations import ACT2FN
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from draftwood.errors import DraftwoodError
from draftwood.models.invalid import INVALID, reason_of


@contextmanager
def reading(whose: str) -> Iterator[None]:
    """Turn the errors of values that are not valid into a :class:`DraftwoodError` of one sentence.

    Args:
        whose: the drafter's in the genitive, for messages: ``"the head's"``.
    """
    try:
        yield
    except DraftwoodError:
        raise
    except INVALID as error:
        raise DraftwoodError(f"{whose} config.json is not valid: {reason_of(error)}") from error


def check_layer(config: Any, whose: str) -> None:
    """Check that transformers has a layer's activation and rotary embedding.

    Args:
        config: of transformers.
        whose: see :func:`reading`.

    Raises:
        DraftwoodError: it lacks one of them.
    """
    rope = config.rope_parameters["rope_type"]
    if rope != "default" and rope not in ROPE_INIT_FUNCTIONS:
        raise DraftwoodError(f'{whose} rope_type is "{rope}", which transformers does not have')
    if config.hidden_act not in ACT2FN:
        raise DraftwoodError(
            f'{whose} hidden_act is "{config.hidden_act}", which transformers does not have'
        )


def architectures(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the classes that a configuration is for."""
    found = raw.get("architectures")
    return tuple(map(str, found)) if isinstance(found, list | tuple) else ()


def part(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of a configuration without its nulls; empty if there is none.

    Raises:
        ValueError: it is no object.
    """
    found = raw.get(name)
    if not isinstance(found, Mapping | None):
        raise ValueError(f"{name} is {found!r}, and no object")
    return without_nulls(found or {})


def without_nulls(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that have a value: null stands for a default."""
    return {name: value for name, value in raw.items() if value is not None}


def whole(raw: Mapping[str, Any], name: str, default: int) -> int:
    """A whole number.

    Raises:
        ValueError: it is something else.
    """
    found = raw.get(name, default)
    if not _is_whole(found):
        raise ValueError(f"{name} is {found!r}, and no whole number")
    return int(found)


def number(raw: Mapping[str, Any], name: str, default: float) -> float:
    """A number.

    Raises:
        ValueError: it is something else.
    """
    found = raw.get(name, default)
    if not isinstance(found, float) and not _is_whole(found):
        raise ValueError(f"{name} is {found!r}, and no number")
    return float(found)


def layers(raw: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """The numbers of layers; empty if there are none.

    Raises:
        ValueError: it is no list of whole numbers.
    """
    found = raw.get(name) or ()
    if not isinstance(found, list | tuple) or not all(map(_is_whole, found)):
        raise ValueError(f"{name} is {found!r}, and no list of layers")
    return tuple(found)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
