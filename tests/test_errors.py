"""Optional dependencies: imported, or refused with the command that installs them."""

import sys

import pytest

from draftwood.errors import DraftwoodError, need


def test_what_is_missing_is_named_with_its_extra() -> None:
    complaint = r"needs no_such_thing \(No module named .*\): pip install 'draftwood\[some\]'"
    with pytest.raises(DraftwoodError, match=complaint):
        need("no_such_thing", "some")


def test_what_is_there_is_imported() -> None:
    need("colorsys", "some")
    assert "colorsys" in sys.modules
