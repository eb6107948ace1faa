"""Parts are found by file name, their fields are settings that can be spelt as text."""

from dataclasses import dataclass, field
from typing import Literal

import pytest

from draftwood import registry
from draftwood.errors import DraftwoodError


@dataclass(frozen=True)
class Sample:
    count: int = field(default=3, metadata={"help": "how many"})
    rate: float = 0.5
    on: bool = True
    mode: Literal["a", "b"] = "a"
    lengths: tuple[int, ...] = (5, 4)
    cap: int | None = None


SETTINGS = {setting.name: setting for setting in registry.settings(Sample)}


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
    assert registry.parse(SETTINGS[name], text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [("count", "x"), ("rate", ""), ("on", "maybe"), ("mode", "c"), ("lengths", "1+a")],
)
def test_parse_refuses(name: str, text: str) -> None:
    with pytest.raises(DraftwoodError, match=name):
        registry.parse(SETTINGS[name], text)


@pytest.mark.parametrize("kind", registry.KINDS)
def test_every_file_is_a_part(kind: registry.Kind) -> None:
    found = registry.names(kind)
    assert found
    for name in found:
        assert isinstance(registry.load(kind, name), type)


def test_unknown_part_is_refused_with_the_choices() -> None:
    with pytest.raises(DraftwoodError, match=r"'nope'.*spine"):
        registry.load("policies", "nope")
