"""A command's prompt: an argument, a file or standard input, as text and as token ids."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from draftwood.cli._options import PATH, F, stack
from draftwood.errors import DraftwoodError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def prompt_options(function: F) -> F:
    """The argument ``PROMPT`` and the options ``--file`` and ``--chat``."""
    return stack(
        click.argument("prompt", required=False),
        click.option(
            "--file", "path", type=PATH, help="Read the prompt from a file; - is standard input."
        ),
        click.option("--chat", is_flag=True, help="Wrap the prompt in the model's chat template."),
    )(function)


def read_prompt(prompt: str | None, path: Path | None) -> str:
    """Read the prompt, without the line break at the end of a file or of standard input.

    Args:
        prompt: the argument, if given.
        path: the file, if given; ``-`` is standard input.

    Raises:
        DraftwoodError: there is no prompt, there are two, or it is empty or not text.
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
    if sys.stdin is None or (path is None and sys.stdin.isatty()):  # None: it is closed
        raise DraftwoodError("no prompt: give it as text, as --file, or on standard input")
    return _text(sys.stdin.buffer.read(), "the prompt on standard input")


def check_prompt(text: str, what: str) -> str:
    """Check a text; ``what`` names it in messages.

    Raises:
        DraftwoodError: it is empty, contains NUL characters, or was not valid UTF-8.
    """
    if not text:
        raise DraftwoodError(f"{what} is empty: give some text")
    if "\0" in text:
        raise DraftwoodError(f"{what} contains a NUL character: give text")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DraftwoodError(
            f"{what} is not valid UTF-8, at character {error.start}: convert it to UTF-8"
        ) from None
    return text


def _text(content: bytes, what: str) -> str:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DraftwoodError(
            f"{what} is not valid UTF-8, at byte {error.start}: convert it to UTF-8"
        ) from None
    return check_prompt(text.removesuffix("\n").removesuffix("\r"), what)


def encode(tokenizer: PreTrainedTokenizerBase, text: str, *, chat: bool) -> list[int]:
    """Token ids of a prompt; with ``chat``, as one user turn of the chat template.

    Raises:
        DraftwoodError: the tokenizer has no chat template, or one that refuses the turn.
    """
    if chat:
        if not tokenizer.chat_template:
            raise DraftwoodError("this model has no chat template: leave --chat out")
        from draftwood.models.chat_template import apply_template

        turn = {"role": "user", "content": text}
        text = str(apply_template(tokenizer, [turn], tokenize=False, add_generation_prompt=True))
    # A chat template writes its special tokens itself.
    return list(tokenizer.encode(text, add_special_tokens=not chat))
