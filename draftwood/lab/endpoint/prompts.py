"""The prompts that a server is asked: built-in ones, or those of prompt files."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from draftwood.lab.bench.prompts import Prompt as FilePrompt


@dataclass(frozen=True)
class Prompt:
    """A prompt.

    Attributes:
        name: in reports.
        text: to be continued, or a user's turn.
        chat: whether it is a user's turn.
    """

    name: str
    text: str
    chat: bool = False


BUILT_IN = (
    Prompt(
        "code",
        '''class Stack:
    """A stack of values."""

    def __init__(self):
        self.values = []

    def push(self, value):
        """Put a value on the stack."""
        self.values.append(value)

    def pop(self):
        """Take the last value off the stack."""
''',
    ),
    Prompt(
        "prose",
        "The old house stood at the end of the lane, and nobody in the village could remember a "
        "time when its windows had been lit. On the evening of the storm",
    ),
    Prompt(
        "list",
        "The months of the year and their lengths:\n1. January has 31 days.\n2. February has 28 "
        "days.\n3. March has",
    ),
    Prompt(
        "repetitive",
        "The cat saw the dog, and the dog saw the cat, and the cat saw the dog, and the dog",
    ),
    Prompt("chat", "Give me three tips for growing tomatoes on a balcony.", chat=True),
)
"""Drafters find something to copy in most of them, and nothing in others."""


def from_files(found: Sequence["FilePrompt"]) -> tuple[Prompt, ...]:
    """Prompts of files: the first turn of each, a user's turn unless it is to be continued."""
    return tuple(Prompt(each.id, each.turns[0], chat=not each.completion) for each in found)
