"""Optional dependencies are imported or refused with a command; integers are checked."""

import sys

import numpy as np
import pytest

from draftwood.errors import DraftwoodError, integers, need


def test_what_is_missing_is_named_with_its_extra() -> None:
    complaint = r"needs no_such_thing \(No module named .*\): pip install 'draftwood\[some\]'"
    with pytest.raises(DraftwoodError, match=complaint):
        need("no_such_thing", "some")


def test_what_is_there_is_imported() -> None:
    need("colorsys", "some")
    assert "colorsys" in sys.modules


def test_integers_are_taken_as_they_are() -> None:
    ids = tuple(range(5))
    assert integers("ids", ids) is ids
    assert integers("ids", np.arange(5)) == integers("ids", [np.int64(i) for i in ids]) == ids
    for bad in (True, 1.0):
        with pytest.raises(DraftwoodError, match="give integers"):
            integers("ids", [1, bad])
