"""A tree as PNG: the layout of the SVG, painted; and ``draftwood tree --png``."""

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from draftwood.errors import DraftwoodError
from draftwood.lab.picture.layout import BOX, layout
from draftwood.lab.picture.raster import SHARPNESS, png, quoted
from draftwood.tree import tree_of
from tests.cli.test_cli import PROMPT, run
from tests.factories.tiny_llama import save_tiny
from tests.lab.picture.test_picture import PATH, TEXTS, mixed

GREEN = (0x1A, 0x7F, 0x37)
WHITE = (0xFF, 0xFF, 0xFF)
BLUE = (0xC1, 0xD8, 0xF6)  # hsl(215, 75%, 86%), the first source's


def pixels(content: bytes) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    """Red, green and blue of each dot."""
    return np.asarray(np.rint(255 * imread(io.BytesIO(content))[..., :3]), dtype=np.uint8)


def test_it_is_the_layout_at_twice_its_size() -> None:
    found = layout(mixed(), PATH, TEXTS, "end")
    shown = pixels(png(mixed(), PATH, TEXTS, "end"))
    assert shown.shape == (SHARPNESS * found.height, SHARPNESS * found.width, 3)

    def colour(x: float, y: float) -> tuple[int, ...]:
        return tuple(shown[round(SHARPNESS * y), round(SHARPNESS * x)].tolist())

    assert colour(1, 1) == WHITE
    for box in found.boxes:
        inside = colour(box.x + 4, box.y + BOX - 5)  # left of the text
        if "bonus" in box.classes:
            assert inside == GREEN
        elif "source-0" in box.classes:
            assert max(abs(a - b) for a, b in zip(inside, BLUE, strict=True)) <= 1
        edge = colour(box.x, box.y + BOX / 2) == GREEN
        if "one-hot" in box.classes:  # else the outline may have a gap there
            assert edge == box.committed
    for line in found.edges:
        assert (colour(line.end - 5, line.low) == GREEN) == line.committed


def test_the_same_tree_makes_the_same_bytes() -> None:
    assert png(mixed(), PATH, TEXTS, "end") == png(mixed(), PATH, TEXTS, "end")
    assert png(mixed(), PATH, TEXTS, "end") != png(mixed(), PATH, TEXTS)


def test_what_the_font_lacks_is_spelt_out() -> None:
    assert quoted(" é\n") == r"' é\n'"
    assert quoted("漢\U0001f600") == r"'\u6f22\U0001f600'"
    assert quoted("$x$") == "'$x$'"
    png(tree_of([1], [-1]), (), ["漢$x_1$"])  # a warning would be an error


def test_pictures_too_large_for_a_png_are_refused() -> None:
    tokens = list(range(1500))
    deep = tree_of(tokens, [t - 1 for t in tokens])
    with pytest.raises(DraftwoodError, match="too many for a PNG: write an SVG instead"):
        png(deep, (), ["x"] * 1500)
    half = tree_of(tokens[:600], [t - 1 for t in tokens[:600]])
    found = layout(half, (), ["x"] * 600)
    assert pixels(png(half, (), ["x"] * 600)).shape[1] == found.width


def test_what_does_not_fit_the_tree_is_refused_too() -> None:
    with pytest.raises(DraftwoodError, match="7 nodes meet 1 texts"):
        png(mixed(), (), ["x"])


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("tiny")))


def test_the_command_writes_both_pictures_of_one_tree(checkpoint: str, tmp_path: Path) -> None:
    svg, raster = tmp_path / "tree.svg", tmp_path / "tree.png"
    flags = ("--model", checkpoint, "--step", "2", "--budget", "6")
    code, _, err = run("tree", PROMPT, *flags, "--svg", str(svg), "--png", str(raster))
    assert code == 0, err
    height, width, _ = pixels(raster.read_bytes()).shape
    drawn = f'width="{width // SHARPNESS}" height="{height // SHARPNESS}"'
    assert drawn in svg.read_text(encoding="utf-8")


def test_wrong_places_are_refused_before_the_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ("tree", "x", "--model", "/nowhere/at-all", "--png")
    code, _, err = run(*flags, str(tmp_path / "missing" / "a.png"))
    assert (code, "cannot write to" in err) == (2, True)
    code, _, err = run("tree", "--golden", "cases.json", "--png", str(tmp_path / "a.png"))
    assert (code, "give one of them" in err) == (2, True)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = run(*flags, str(tmp_path / "a.png"))
    assert (code, "pip install 'draftwood[plots]'" in err) == (2, True)
    assert list(tmp_path.iterdir()) == []
