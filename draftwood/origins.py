"""Where a model comes from, as its configuration says: what makes two models one family."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Origin:
    """What a configuration says of a model's family.

    Attributes:
        name: directory or hub id that the model was loaded from; empty if it was made otherwise.
        family: the configuration's ``model_type``, of the text part.
        begins: id of the token that begins a text, or None.
        ends: ids of the tokens that end one, ascending.
    """

    name: str
    family: str
    begins: int | None
    ends: tuple[int, ...]


def origin_of(config: Any) -> Origin:
    """The origin of a model with this transformers configuration."""
    text = config.get_text_config()
    ends = getattr(text, "eos_token_id", None)
    found = [] if ends is None else ends if isinstance(ends, list | tuple) else [ends]
    return Origin(
        name=getattr(config, "_name_or_path", "") or "",
        family=text.model_type,
        begins=getattr(text, "bos_token_id", None),
        ends=tuple(sorted(found)),
    )
