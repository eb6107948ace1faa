"""Fixtures of the tests of what computes few rows on a CPU."""

import pytest

from draftwood.runner import attach
from tests.factories.layout_choices import IN_ROWS


@pytest.fixture
def rows_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every weight is multiplied as it is stored, without timing."""
    monkeypatch.setattr(attach, "cached_layouts", lambda w, **_: [IN_ROWS] * len(w))
