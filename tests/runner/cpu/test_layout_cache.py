"""Weight layouts are chosen once per machine, and again if the cached choice cannot be used."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from draftwood.costs.busy import Others, Watched
from draftwood.files import CACHE_VARIABLE
from draftwood.runner.cpu import layout_cache
from draftwood.runner.cpu.layout_cache import cached_layouts
from draftwood.runner.cpu.layouts import PLAIN, TRANSPOSED, LayoutChoice, Weight

WEIGHTS: list[Weight] = [(torch.zeros(3, 4), None), (torch.zeros(5, 4), torch.zeros(5))]
CHOSEN = [LayoutChoice(TRANSPOSED, 2, 16), None]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    used(monkeypatch, 0.0)
    return tmp_path / "layouts"


def used(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    """Have other processes use that share of the cores."""

    @contextmanager
    def watched() -> Iterator[Watched]:
        yield Watched(Others(share, 1.0))

    monkeypatch.setattr(layout_cache, "watched", watched)


def choose(weights: Sequence[Weight]) -> list[LayoutChoice | None]:
    assert len(weights) == 2
    return list(CHOSEN)


def never(weights: Sequence[Weight]) -> list[LayoutChoice | None]:
    raise AssertionError("layout_cache again")


def test_a_choice_is_cached_for_its_shapes() -> None:
    assert cached_layouts(WEIGHTS, choose) == CHOSEN
    assert cached_layouts(WEIGHTS, never) == CHOSEN
    for other in ([WEIGHTS[1], WEIGHTS[0]], [(w.bfloat16(), b) for w, b in WEIGHTS]):
        with pytest.raises(AssertionError, match="layout_cache again"):
            cached_layouts(other, never)


def test_a_choice_among_other_layouts_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    cached_layouts(WEIGHTS, choose)
    monkeypatch.setattr(layout_cache, "layouts", lambda _: [PLAIN, TRANSPOSED])
    with pytest.raises(AssertionError, match="layout_cache again"):
        cached_layouts(WEIGHTS, never)


def test_a_choice_by_other_kernels_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    cached_layouts(WEIGHTS, choose)
    monkeypatch.setattr(layout_cache, "kernels_version", lambda: "other")
    with pytest.raises(AssertionError, match="layout_cache again"):
        cached_layouts(WEIGHTS, never)


def test_fresh_ignores_the_cached_choice() -> None:
    cached_layouts(WEIGHTS, lambda weights: [None, None])
    assert cached_layouts(WEIGHTS, choose, fresh=True) == CHOSEN
    assert cached_layouts(WEIGHTS, never) == CHOSEN


def test_a_choice_on_a_busy_machine_is_not_cached(
    monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    used(monkeypatch, 0.5)
    assert cached_layouts(WEIGHTS, choose) == CHOSEN
    assert not place.exists()


@pytest.mark.parametrize("value", ["1", "[null]", '[null, ["folded", 1, 2]]', "[null, [1, 2]]"])
def test_an_invalid_file_is_replaced(value: str, place: Path) -> None:
    cached_layouts(WEIGHTS, choose)
    (path,) = place.iterdir()
    text = path.read_text()
    path.write_text(text.replace('[["transposed", 2, 16], null]', value))
    assert path.read_text() != text
    assert cached_layouts(WEIGHTS, choose) == CHOSEN
    assert path.read_text() == text


def test_no_weights_are_no_work(place: Path) -> None:
    assert cached_layouts([], never) == []
    assert not place.exists()
