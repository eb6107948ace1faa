"""Applies a chat template, which is code that comes with the model and may raise anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from draftwood.errors import DraftwoodError, first_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def apply_template(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Mapping[str, Any]], **options: Any
) -> Any:
    """A conversation as ``apply_chat_template`` returns it.

    Args:
        tokenizer: with a chat template.
        messages: of the conversation.
        options: of ``apply_chat_template``.

    Raises:
        DraftwoodError: the template raises an exception.
    """
    try:
        return tokenizer.apply_chat_template(messages, **options)  # type: ignore[arg-type]
    except Exception as error:
        raise DraftwoodError(
            f"the chat template does not take this conversation: {first_line(error)}"
        ) from error
