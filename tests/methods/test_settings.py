"""A part's fields are settings that can be spelt as text."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pytest

from draftwood.errors import DraftwoodError
from draftwood.methods import registry
from draftwood.methods.settings import checked, parse
from draftwood.protocols.settings import settings


class Thing:
    """Stands for a loaded model."""


@dataclass(frozen=True)
class Sample:
    count: int = field(default=3, metadata={"help": "how many"})
    rate: float = 0.5
    on: bool = True
    mode: Literal["a", "b"] = "a"
    lengths: tuple[int, ...] = (5, 4)
    cap: int | None = None
    model: str | Thing = "none"
    files: tuple[str, ...] = ()


SETTINGS = {setting.name: setting for setting in settings(Sample)}


def test_fields_are_settings() -> None:
    assert list(SETTINGS) == [*("count", "rate", "on", "mode", "lengths", "cap", "model", "files")]
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
        ("lengths", "", ()),
        ("cap", "none", None),
        ("cap", "9", 9),
    ],
)
def test_parse(name: str, text: str, value: object) -> None:
    assert parse(SETTINGS[name], text) == value


def test_a_plus_sign_may_be_in_the_name_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("c++", "src"):
        (tmp_path / name).mkdir()
    assert parse(SETTINGS["files"], "c++") == ("c++",)
    assert parse(SETTINGS["files"], "src+src") == ("src", "src")
    assert parse(SETTINGS["files"], "src+") == ("src", ""), "which the part refuses"


@pytest.mark.parametrize("kind", registry.names("drafters"))
def test_whole_numbers_of_drafters_have_an_upper_bound(kind: str) -> None:
    """Beyond the integers of arrays, a number would fail in every request."""
    part = registry.load("drafters", kind)
    for each in settings(part):
        if int in (each.type, *get_args(each.type)):
            with pytest.raises(DraftwoodError, match=rf"^{each.name} is .*at most"):
                part(**{each.name: (10**23,) if isinstance(each.default, tuple) else 10**23})


@pytest.mark.parametrize(
    ("name", "text"),
    [("count", "x"), ("rate", ""), ("on", "maybe"), ("mode", "c"), ("lengths", "1+a")],
)
def test_parse_refuses(name: str, text: str) -> None:
    with pytest.raises(DraftwoodError, match=name):
        parse(SETTINGS[name], text)


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("count", np.int64(7), 7),
        ("rate", 1, 1.0),
        ("rate", np.float32(0.5), 0.5),
        ("on", False, False),
        ("mode", "b", "b"),
        ("lengths", [6, 3], (6, 3)),
        ("lengths", (6, np.int64(3)), (6, 3)),
        ("cap", None, None),
        ("cap", 9, 9),
        ("model", "some/name", "some/name"),
        ("model", Path("some/name"), "some/name"),
    ],
)
def test_objects_are_checked(name: str, value: object, kept: object) -> None:
    found = checked(SETTINGS[name], value)
    assert found == kept
    assert type(found) is type(kept)


def test_a_model_is_any_object_that_is_no_text() -> None:
    model = Thing()
    assert checked(SETTINGS["model"], model) is model


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("count", 7.0, "count=7.0: expected int"),
        ("count", "7", "count='7': expected int"),
        ("count", True, "count=True: expected int"),
        ("count", None, "count=None: expected int"),
        ("rate", "0.5", "rate='0.5': expected float"),
        ("rate", False, "rate=False: expected float"),
        ("on", 1, "on=1: expected bool"),
        ("mode", "c", "mode='c': expected one of a, b"),
        ("mode", ["a"], "mode=.*expected one of a, b"),
        ("lengths", 5, "lengths=5: expected a tuple of int"),
        ("lengths", (5, 4.0), "lengths=.*expected int"),
        ("cap", 1.5, "cap=1.5: expected int or NoneType"),
        ("model", 5, "model=5: expected str or Thing"),
        ("model", list(range(99)), "model=list: expected str or Thing"),
    ],
)
def test_objects_of_another_type_are_refused(name: str, value: Any, complaint: str) -> None:
    with pytest.raises(DraftwoodError, match=complaint):
        checked(SETTINGS[name], value)
