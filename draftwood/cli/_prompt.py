"""The prompt of a command: an argument, a file or standard input, as text and as token ids."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from draftwood.errors import DraftwoodError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def read_prompt(prompt: str | None, path: Path | None) -> str:
    """The prompt; the line break at the end of a file or of standard input is not part of it.

    Args:
        prompt: as an argument.
        path: of a file; ``-`` is standard input.

    Raises:
        DraftwoodError: there is none, there are two, or it is empty or no text.
    """
    if prompt is not None and path is not None:
        raise DraftwoodError("give the prompt as text or as --file, not both")
    if prompt is not None:
        return check_prompt(prompt, "the prompt")
    if path is not None and str(path) != "-":
        try:
            content = path.read_bytes()
        except OSError as error:
            raise DraftwoodError(f"cannot read the prompt from {path}: {error.strerror}") from error
        return _text(content, f"the prompt in {path}")
    if path is None and sys.stdin.isatty():
        raise DraftwoodError("no prompt: give it as text, as --file, or on standard input")
    return _text(sys.stdin.buffer.read(), "the prompt on standard input")


def check_prompt(text: str, what: str) -> str:
    """The text itself.

    Raises:
        DraftwoodError: it is empty, holds NUL characters, or came as bytes that are not UTF-8.
    """
    if not text:
        raise DraftwoodError(f"{what} is empty: give some text")
    if "\0" in text:
        raise DraftwoodError(f"{what} holds a NUL character: it is no text")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DraftwoodError(f"{what} is not valid UTF-8, at character {error.start}") from None
    return text


def _text(content: bytes, what: str) -> str:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DraftwoodError(f"{what} is not valid UTF-8, at byte {error.start}") from None
    return check_prompt(text.removesuffix("\n").removesuffix("\r"), what)


def encode(tokenizer: PreTrainedTokenizerBase, text: str, *, chat: bool) -> list[int]:
    """Token ids of a prompt, as one user turn of the chat template if ``chat``.

    Raises:
        DraftwoodError: the tokenizer has no chat template.
    """
    if chat:
        if not tokenizer.chat_template:
            raise DraftwoodError("this model has no chat template: leave --chat out")
        text = str(
            tokenizer.apply_chat_template(
                [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
            )
        )
    # A chat template writes its special tokens itself.
    return list(tokenizer.encode(text, add_special_tokens=not chat))
