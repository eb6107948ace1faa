"""The prompts of ``draftwood demo``: questions for a chat model, beginnings for another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from draftwood.models import Loaded


@dataclass(frozen=True)
class PromptSet:
    """Prompts with the settings that keep the demo short.

    Attributes:
        prompts: texts by name.
        chat: whether each is a user's turn in the model's chat template.
        max_new_tokens: most tokens to generate per prompt.
        repeats: timed runs per method and prompt.
    """

    prompts: Mapping[str, str]
    chat: bool
    max_new_tokens: int
    repeats: int


CHATS = PromptSet(
    {
        "write code": "Write a Python class Stack with the methods push, pop and is_empty.",
        "edit code": """Translate this Python class to JavaScript:

```python
class Account:
    def __init__(self, owner):
        self.owner = owner
        self.balance = 0

    def deposit(self, amount):
        self.balance += amount

    def withdraw(self, amount):
        self.balance -= amount
```""",
        "answer from a text": (
            "Answer from this text: Ada Holm opened her bakery in Vik in 1998 with one oven and "
            "two helpers. In 2006 a fire destroyed the kitchen, and the village lent her the "
            "school kitchen for five months. The new bakery has four ovens. It is known for its "
            "rye bread, which is baked every night at two.\n\n"
            "Question: What is the history of the bakery?"
        ),
        "free question": "Give me three tips for growing tomatoes on a balcony.",
    },
    chat=True,
    max_new_tokens=96,
    repeats=1,
)

COMPLETIONS = PromptSet(
    {
        "code": '''class Temperature:
    """A temperature that can be read in several scales."""

    def __init__(self, celsius):
        self.celsius = celsius

    def to_fahrenheit(self):
        """Return the temperature in degrees Fahrenheit."""
        return self.celsius * 9 / 5 + 32

    def to_kelvin(self):
        """Return the temperature in kelvin."""
        return self.celsius + 273.15

    def from_fahrenheit(self, fahrenheit):
        """Set the temperature from degrees Fahrenheit."""
''',
        "math": (
            "Question: A baker makes 12 trays of rolls with 8 rolls on each tray. She sells 50 "
            "rolls in the morning and half of the rest in the afternoon. How many rolls are "
            "left?\nAnswer:"
        ),
        "prose": (
            "The old house stood at the end of the lane, and nobody in the village could remember "
            "a time when its windows had been lit. On the evening of the storm"
        ),
    },
    chat=False,
    max_new_tokens=128,
    repeats=3,
)


def prompts_for(loaded: Loaded) -> PromptSet:
    """Questions for a model with a chat template, beginnings for another one."""
    from draftwood import models

    chats = loaded.tokenizer.chat_template and loaded.name not in models.EMBEDDED
    return CHATS if chats else COMPLETIONS
