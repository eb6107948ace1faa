"""The attention implementation of a model's text part, set and put back.

A model with other parts, such as a vision tower, has an implementation for each.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any


def kept(model: Any) -> Callable[[], None]:
    """What puts the implementations of all parts of a transformers model back to today's."""
    found = {id(config): config for config in _configs(model)}
    return partial(_put_back, [(config, config._attn_implementation) for config in found.values()])


def set_for_text(model: Any, name: str) -> None:
    """Let the text part of a transformers model use an implementation; other parts keep theirs."""
    top, text = model.config, model.config.get_text_config()
    keys = [key for key in top.sub_configs if getattr(top, key, None) is text]
    # The whole makes masks for its text, so it needs the name too.
    model.set_attn_implementation({"": name, **dict.fromkeys(keys, name)} if keys else name)


def _configs(model: Any) -> Iterator[Any]:
    """The configurations of a model and of its parts, each after the one that holds it."""
    for module in model.modules():
        config = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation"):
            yield from _with_parts(config)


def _with_parts(config: Any) -> Iterator[Any]:
    yield config
    for key in config.sub_configs:
        part = getattr(config, key, None)
        if hasattr(part, "_attn_implementation"):
            yield from _with_parts(part)


def _put_back(found: list[tuple[Any, str | None]]) -> None:
    # Each sets its parts' too, and these come after it.
    for config, name in found:
        config._attn_implementation = name
