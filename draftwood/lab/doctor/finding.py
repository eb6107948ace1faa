"""A finding of ``draftwood doctor``: what is so, whether that is good, and what would help."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "warning", "failed"]
"""``note``: it could be better; ``warning``: it spoils speeds; ``failed``: it cannot be used."""


@dataclass(frozen=True)
class Advice:
    """What would help.

    Attributes:
        text: a clause.
        command: that does it or shows it; empty if there is none.
    """

    text: str
    command: str = ""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: of the thing, one or two words.
        text: what was found.
        state: how good that is.
        advice: what would help.
    """

    name: str
    text: str
    state: State = "ok"
    advice: tuple[Advice, ...] = ()


def in_commands(name: str, dtype: str) -> str:
    """A model as further commands name it, with the number format that was asked for."""
    return name if not name or dtype == "auto" else f"{name} --dtype {dtype}"


def doctor_command(model: str = "", options: str = "") -> str:
    """The command that looks at a model again, or at the machine, with other options."""
    return " ".join(part for part in ("draftwood doctor", model, options) if part)
