"""Fixtures of the tests of what computes few rows on a CPU."""

import pytest

from draftwood.runner import attach
from draftwood.runner.cpu.layouts import WHOLE


@pytest.fixture
def rows_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every weight is multiplied as it is stored, without timing."""
    monkeypatch.setattr(attach, "cached_layouts", lambda w, **_: [WHOLE] * len(w))
