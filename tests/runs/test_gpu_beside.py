"""Modelled speed-ups beside those that docs/gpu.md has."""

from typing import Any

from runs.results_page.gpu import PAGE, beside, measured

TEXT = """\
Measured on an H200, before on an H100. On an H200.

| method | batch 1 | batch 16, temperature 1 |
|---|---|---|
| `auto` | 1.84 [1.55-2.27] | 0.9 |
| repeated 8-grams of `ar` | 10 % | 1 % |

| shape | batch |
|---|---|
| 8b | 1 |
"""


def modelled(temperature: float) -> dict[str, Any]:
    cell = {"speedup": 6.9}
    return {
        "modelled": {"h100": {"8b": {"ar": {"1": cell}, "auto:head=x": {"1": cell, "16": cell}}}},
        "provenance": {"settings": {"temperature": temperature, "repeated_8grams": 0.475}},
    }


def test_tables_of_methods_are_read_with_their_gpu() -> None:
    assert list(measured(TEXT)) == [
        ("H200", "---", {"batch 1": "---", "batch 16, temperature 1": "---"}),
        ("H200", "`auto`", {"batch 1": "1.84 [1.55-2.27]", "batch 16, temperature 1": "0.9"}),
        ("H200", "repeated 8-grams of `ar`", {"batch 1": "10 %", "batch 16, temperature 1": "1 %"}),
    ]


def test_measured_cells_stand_below_the_modelled_ones() -> None:
    _, shown = beside(modelled(0.0))
    assert "| modelled, h100, 8b | `auto:head=x` | 6.90 (48 %) | 6.90 (48 %) |" in shown
    page = {(gpu, method): cells for gpu, method, cells in measured(PAGE.read_text("utf-8"))}
    cell, share = (
        page["H200", name]["batch 16"] for name in ("`auto`", "repeated 8-grams of `ar`")
    )
    assert f"| {cell} ({share}) |" in shown
    assert "measured, H100, 8b" in shown
    assert not list(beside(modelled(0.7)))
