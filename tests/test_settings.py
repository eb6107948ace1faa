"""A part's fields are settings that can be spelt as text."""

from dataclasses import dataclass, field
from typing import Literal

import pytest

from draftwood.errors import DraftwoodError
from draftwood.settings import parse, settings


@dataclass(frozen=True)
class Sample:
    count: int = field(default=3, metadata={"help": "how many"})
    rate: float = 0.5
    on: bool = True
    mode: Literal["a", "b"] = "a"
    lengths: tuple[int, ...] = (5, 4)
    cap: int | None = None


SETTINGS = {setting.name: setting for setting in settings(Sample)}


def test_fields_are_settings() -> None:
    assert list(SETTINGS) == ["count", "rate", "on", "mode", "lengths", "cap"]
    assert SETTINGS["count"].help == "how many"
    assert SETTINGS["lengths"].default == (5, 4)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("count", "7", 7),
        ("rate", "1e-2", 0.01),
        ("on", "off", False),
        ("on", "Yes", True),
        ("mode", "b", "b"),
        ("lengths", "6+3", (6, 3)),
        ("cap", "none", None),
        ("cap", "9", 9),
    ],
)
def test_parse(name: str, text: str, value: object) -> None:
    assert parse(SETTINGS[name], text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [("count", "x"), ("rate", ""), ("on", "maybe"), ("mode", "c"), ("lengths", "1+a")],
)
def test_parse_refuses(name: str, text: str) -> None:
    with pytest.raises(DraftwoodError, match=name):
        parse(SETTINGS[name], text)
