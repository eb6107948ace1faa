"""docs/theory.md shows the figures its command prints, and they say what the document claims."""

from pathlib import Path

import numpy as np
import pytest

from draftwood.lab.theory import report
from draftwood.lab.theory.yields import AcceptanceRates

DOCUMENT = Path(__file__).parents[3] / "docs" / "theory.md"


@pytest.fixture(scope="module")
def grid() -> list[report.AllocationLoss]:
    return report.allocation_grid()


def test_the_document_is_up_to_date() -> None:
    printed = report.report()
    assert printed.count("### Table") == 5
    shown = DOCUMENT.read_text(encoding="utf-8")
    for section in printed.split("### ")[1:]:
        assert section.strip() in shown
    assert "python -m draftwood.lab.theory.report" in shown


def test_no_allocation_beats_the_optimum_on_the_grid(grid: list[report.AllocationLoss]) -> None:
    assert min(loss.clipped for loss in grid) > -1e-12
    assert min(loss.harmonic for loss in grid) > -1e-12


def test_the_losses_the_document_reports(grid: list[report.AllocationLoss]) -> None:
    unclipped = [loss for loss in grid if not loss.was_clipped]
    assert (len(grid), len(unclipped)) == (1813, 540)
    assert max(loss.clipped for loss in unclipped) < 1e-12
    clipped, harmonic = (
        max(grid, key=lambda loss: loss.clipped),
        max(grid, key=lambda loss: loss.harmonic),
    )
    assert clipped.clipped == pytest.approx(0.2624, abs=1e-4)
    assert (clipped.spine_length, clipped.branches) == (20, 50)
    assert clipped.rates == AcceptanceRates(0.1, 0.033)
    assert harmonic.harmonic == pytest.approx(0.2417, abs=1e-4)
    assert (harmonic.spine_length, harmonic.branches) == (9, 5)
    assert harmonic.rates == AcceptanceRates(0.21, 0.2)
    assert np.mean([loss.clipped > 1e-12 for loss in grid]) == pytest.approx(0.463, abs=1e-3)
