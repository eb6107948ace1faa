"""Figures of a document: which there are, what they say, and how they get to the disk."""

import importlib
import re
from pathlib import Path
from typing import Any, Literal
from unittest import mock
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from draftwood.lab.bench.document import Document
from draftwood.lab.bench.plots import FIGURES, draw, save
from draftwood.lab.bench.plots.reliability import COLOURS as OF_SOURCES
from draftwood.lab.bench.plots.style import (
    COLOURS,
    GREY,
    NAME,
    WIDTH,
    drawing,
    footed,
    method_marks,
    rendered,
    shortened,
)
from tests.lab.bench.documents import (
    document,
    forecast,
    method,
    metrics,
    parsed,
    peer,
    plain,
    ratio,
    reliability,
)


@pytest.fixture(scope="module")
def figures() -> dict[str, Figure]:
    """Of the sample document; not to be changed."""
    return draw(document())


def one(name: str, **others: Any) -> Figure | None:
    """One figure of a document."""
    module = importlib.import_module(f"draftwood.lab.bench.plots.{name}")
    with drawing():
        found = module.draw(document(**others))
    assert found is None or isinstance(found, Figure)
    return found


def sure(name: str, **others: Any) -> Figure:
    """One figure that there is."""
    found = one(name, **others)
    assert found is not None
    return found


def figure_of(name: str, predicted: dict[str, Any] | None = None, **figures: Any) -> Figure | None:
    """One figure of a document with one method."""
    whole = method(metrics(**figures))
    if predicted is not None:
        whole["reliability"] = reliability() | {"all_steps": forecast(predicted)}
    return one(name, methods={"x": whole})


def words(figure: Figure) -> list[str]:
    """All text in it, as the SVG has it."""
    root = ET.fromstring(rendered(figure, "svg"))
    return [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]


def bars(figure: Figure, axes: int) -> list[float]:
    """Lengths of the bars of one of its axes."""
    found = figure.axes[axes].patches
    return [bar.get_width() for bar in found if isinstance(bar, Rectangle)]


def across(line: Line2D) -> list[float]:
    return [float(x) for x in np.asarray(line.get_xdata())]


def upwards(line: Line2D) -> list[float]:
    return [float(y) for y in np.asarray(line.get_ydata())]


def marks(figure: Figure, axes: int = 0) -> list[tuple[float, float]]:
    """Points that have a marker."""
    lines = [line for line in figure.axes[axes].lines if line.get_marker() != "None"]
    return [point for line in lines for point in zip(across(line), upwards(line), strict=True)]


def test_all_figures_are_drawn_and_are_as_wide_as_a_telephone(figures: dict[str, Figure]) -> None:
    assert tuple(figures) == FIGURES
    for figure in figures.values():
        assert figure.get_figwidth() * 72 == WIDTH


def test_figures_with_nothing_to_show_are_left_out() -> None:
    assert draw(document(methods={})) == {}
    assert set(draw(document(methods={"ar": method(plain())}))) == {"phases"}
    assert set(draw(document(methods={"hf": method(peer())}))) == set()


def test_speed_ups_are_bars_by_task_with_values_and_lines() -> None:
    methods = parsed()["methods"]
    methods["goose:budget=16"]["by_task"] = {
        "code": method(metrics(3.0)),
        "chat": method(metrics(None)),
    }
    figure = sure("speedup", methods=methods)
    panels = [k for k, axes in enumerate(figure.axes) if axes.patches]
    assert [bars(figure, k) for k in panels] == [[2.0, 1.4], [3.0, 1.4], [1.4]]
    found = words(figure)
    for word in ("All tasks", "code", "chat", "2.00", "3.00", "1.40", " unknown", "ar", "hf"):
        assert word in found
    assert found.count("goose:budget=16") == 3
    lines = [across(line) for line in figure.axes[panels[0]].lines]
    goose, pld = [1.9, 2.1], [1.4 - 0.1, 1.4 + 0.1]
    assert lines == [goose, goose, pld, pld, [1, 1], [0.8, 0.8]]


def test_one_task_is_one_panel_and_without_hf_there_is_no_line_for_it() -> None:
    methods = {"ar": method(plain()), "goose": method(metrics())}
    for found in methods.values():
        del found["by_task"]["chat"]
    shown = words(sure("speedup", methods=methods))
    assert "All tasks" not in shown
    assert "hf" not in shown
    assert (shown.count("code"), shown.count("goose")) == (1, 1)


def test_efficiency_puts_draft_forwards_across_and_tokens_upwards(
    figures: dict[str, Figure],
) -> None:
    found = figures["efficiency"]
    assert sorted(marks(found)) == [(0.0, 1.0), (0.75, 1.6), (0.75, 2.5)]  # and no peer
    (oracle,) = (line for line in found.axes[0].lines if line.get_linestyle() == "--")
    assert across(oracle) == upwards(oracle)
    assert {"goose:budget=16", "pld", "ar"} <= set(words(found))


def test_depth_has_one_panel_per_method_with_its_curve_in_its_colour(
    figures: dict[str, Figure],
) -> None:
    found = figures["depth"]
    assert {"goose:budget=16", "pld"} <= set(words(found))
    assert len(found.axes) == 2
    assert marks(found) == [(1, 0.8), (2, 0.4), (3, 0.8 / 3), (4, 0.2)]
    (own,) = (line for line in found.axes[1].lines if line.get_marker() != "None")
    assert own.get_color() == COLOURS[1]


def test_depths_of_few_steps_are_not_drawn() -> None:
    few = [
        {"depth": d, "offered": n, "reached": 1, "rate": ratio(0.5)}
        for d, n in ((1, 5), (2, 4), (17, 99))
    ]
    figure = figure_of("depth", acceptance_by_depth=few)
    assert figure is not None
    assert marks(figure) == [(1, 0.5)]
    assert figure_of("depth", acceptance_by_depth=few[1:]) is None


def test_sources_have_their_rates_and_counts(figures: dict[str, Figure]) -> None:
    found = figures["source"]
    assert [x for x, _ in marks(found)] == [0.15, 0.5] * 2
    assert {"15 % = 120/800", "50 % = 700/1.4k", "adjacency", "context"} <= set(words(found))


def test_large_counts_are_abbreviated() -> None:
    sources = {"a": {"drafted": 1_240_000, "accepted": 45_600, "rate": ratio(0.04)}}
    figure = figure_of("source", acceptance_by_source=sources)
    assert figure is not None
    assert "4 % = 46k/1.2M" in words(figure)


def test_the_funnel_has_rank_down_and_depth_across_and_leaves_small_cells_out() -> None:
    drawn = [(1, 1, 10, 9), (1, 2, 10, 1), (2, 1, 8, 2)]
    left_out = [(2, 2, 4, 4), (13, 1, 99, 9), (1, 11, 99, 9)]
    keys = ("depth", "rank", "offered", "accepted")
    ranks = [dict(zip(keys, cell, strict=True)) for cell in (*drawn, *left_out)]
    figure = figure_of("funnel", acceptance_by_rank=ranks)
    assert figure is not None
    (panel,) = (axes for axes in figure.axes if axes.get_ylabel() == "rank")
    (mesh,) = (part for part in panel.collections if isinstance(part, QuadMesh))
    shares = mesh.get_array()
    assert shares is not None
    assert [None if share is np.ma.masked else float(share) for share in shares.ravel()] == [
        *(0.9, 0.25),
        *(0.1, None),
    ]
    assert panel.yaxis_inverted()


def points(figure: Figure, axes: int) -> dict[str, list[tuple[float, float]]]:
    """Points of a panel by source, across and upwards."""
    found = [c for c in figure.axes[axes].collections if isinstance(c, PathCollection)]
    return {
        str(one.get_label()): [(float(x), float(y)) for x, y in np.asarray(one.get_offsets())]
        for one in found
    }


def test_reliability_puts_the_probability_across_and_the_share_upwards(
    figures: dict[str, Figure],
) -> None:
    found = figures["reliability"]
    panels = [k for k, axes in enumerate(found.axes) if axes.get_xlim()[1] == 1.04]
    assert len(panels) == 2, "one for each method that predicts"
    adjacency, context = [(0.05, 0.04), (0.45, 0.5)], [(0.85, 0.85)]
    for k in panels:
        drawn = points(found, k)
        assert list(drawn) == ["adjacency", "context"]
        assert drawn["adjacency"] == [pytest.approx(point) for point in adjacency]
        assert drawn["context"] == [pytest.approx(point) for point in context]
    lines = found.axes[panels[0]].lines
    (diagonal,) = (line for line in lines if line.get_linestyle() == "--")
    assert across(diagonal) == upwards(diagonal) == [0, 1]
    (interval,) = (line for line in lines if across(line) == pytest.approx([0.45, 0.45]))
    # Wilson's: the ends are 1.96 standard errors from 20 of 40.
    assert upwards(interval) == pytest.approx([0.3519953, 0.6480047])
    assert interval.get_color() == OF_SOURCES[0]
    (first, _) = found.axes[panels[0]].collections
    assert isinstance(first, PathCollection)
    more, fewer = first.get_sizes()
    assert more > fewer, "400 candidates and 40"
    assert {"adjacency", "context", "predicted probability", "goose:budget=16"} <= set(words(found))


def test_tenths_of_few_candidates_are_not_drawn() -> None:
    figure = figure_of("reliability", {"a": {0: (4, 1), 5: (5, 1)}, "b": {9: (4, 4)}})
    assert figure is not None
    assert points(figure, 0) == {"a": [pytest.approx((0.55, 0.2))], "b": []}
    assert figure_of("reliability", {"b": {9: (4, 4)}}) is None
    assert one("reliability", methods={"x": method(plain())}) is None


def test_many_sources_have_a_legend_of_several_lines() -> None:
    names = [f"a source of the number {k}" for k in range(7)]
    figure = figure_of("reliability", {name: {5: (9, 4)} for name in names})
    assert figure is not None
    assert set(names) <= set(words(figure))
    assert all(0 <= box.x0 < box.x1 <= WIDTH for box in boxes(figure))


def test_time_is_stacked_to_the_whole(figures: dict[str, Figure]) -> None:
    found = figures["phases"]
    lengths = bars(found, -1)
    assert lengths[::3] == pytest.approx([0.6, 0.3, 0.05, 0.03, 0.02, 0.0])
    assert sum(lengths) == pytest.approx(3)  # goose, pld and ar, but no peer
    shown = words(found)
    assert shown.count("60") == 2  # parts that are large enough have their number in them
    assert "5" not in shown


def test_a_method_keeps_its_mark_and_25_differ() -> None:
    names = ["ar", *(f"m{k}" for k in range(24))]
    found = method_marks(names)
    assert found["ar"].colour == GREY
    assert len({(mark.colour, mark.marker) for mark in found.values()}) == 25
    assert method_marks([*names[1:], "ar"]) == found


def test_long_names_lose_their_middle() -> None:
    name = "goose:adjacency=model:budget=64"
    short = shortened(name)
    first, last = short.split("…")
    assert name.startswith(first)
    assert name.endswith(last)
    assert len(short) == NAME
    assert shortened("goose") == "goose"
    assert shortened("a\nb\u202e") == "a\ufffdb\ufffd"


def test_names_are_no_markup_of_any_kind() -> None:
    name = "$x_1$ <b>&\x00"
    methods = {"ar": method(plain()), name: method(metrics())}
    drawn = draw(document(methods=methods))
    assert set(drawn) == set(FIGURES)
    for figure in drawn.values():
        assert "$x_1$ <b>&\ufffd" in words(figure)


def many(count: int) -> Document:
    """So many methods, of which half draft with a model."""
    methods = {"ar": method(plain())}
    for k in range(1, count):
        whole = metrics(0.5 + k / 10, 1 + k / 8, draft_efficiency=ratio(k / 4 * (k % 2)))
        methods[f"method:number={k}:long=on"] = method(whole)
    return document(methods=methods)


def boxes(figure: Figure) -> list[Bbox]:
    """Bounds of all text that is drawn, in points."""
    figure.set_dpi(72)
    FigureCanvasAgg(figure)
    drawn: dict[int, Text] = {}
    draw_text = Text.draw

    def record(text: Text, renderer: RendererBase) -> None:
        drawn[id(text)] = text
        draw_text(text, renderer)

    with mock.patch.object(Text, "draw", record):
        figure.draw_without_rendering()
    return [
        text.get_window_extent()
        for text in drawn.values()
        if text.get_text() and text.get_visible()
    ]


@pytest.mark.slow
def test_labels_of_25_methods_do_not_touch() -> None:
    for name, figure in draw(many(25)).items():
        found = boxes(figure)
        assert len(found) >= 24
        for i, a in enumerate(found):
            assert 0 <= a.x0 < a.x1 <= WIDTH, name
            assert 0 <= a.y0 < a.y1 <= figure.get_figheight() * 72, name
            for b in found[:i]:
                apart = a.x1 <= b.x0 or b.x1 <= a.x0 or a.y1 <= b.y0 + 1 or b.y1 <= a.y0 + 1
                assert apart, name


def test_each_figure_is_written_twice(tmp_path: Path) -> None:
    paths = save(document(), tmp_path)
    assert [p.name for p in paths] == [f"{n}.{kind}" for n in FIGURES for kind in ("png", "svg")]
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    for path in paths:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG" if path.suffix == ".png" else b"<?xml")
    svg = (tmp_path / "speedup.svg").read_text(encoding="utf-8")
    assert 'width="360pt"' in svg
    assert set(re.findall(r"(?<=[ :])([\d.]+)px", svg)) == {"10"}, "all type is legible"


@pytest.mark.slow
def test_figures_of_looping_outputs_say_so_below_everything_else(tmp_path: Path) -> None:
    save(document(), tmp_path)
    text = " ".join((tmp_path / "speedup.svg").read_text(encoding="utf-8").split())
    assert "† 1 of 4 outputs loop" in text
    calm = {"ar": method(plain(looping_texts=0)), "x": method(metrics(looping_texts=0))}
    save(document(methods=calm), tmp_path)
    assert "outputs loop" not in (tmp_path / "speedup.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["speedup", "depth"])
def test_a_note_is_below_the_figure_and_leaves_its_panels_their_size(name: str) -> None:
    figure = sure(name)
    boxes(figure)
    before = [axes.get_window_extent().height for axes in figure.axes]
    footed(figure, "a note that is so long that it needs several lines of the sheet, " * 3)
    found = boxes(figure)
    after = [axes.get_window_extent().height for axes in figure.axes]
    assert after == pytest.approx(before, rel=0.15)
    note = min(found, key=lambda box: box.y0)
    assert note.height > 3 * 10
    assert 0 <= note.x0 < note.x1 <= WIDTH
    assert all(axes.get_window_extent().y0 > note.y1 for axes in figure.axes)


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_same_document_makes_the_same_bytes_whatever_the_settings(
    kind: Literal["png", "svg"],
) -> None:
    wanted = rendered(sure("phases"), kind)
    with mpl.rc_context({"font.size": 40, "axes.facecolor": "red", "svg.fonttype": "path"}):
        assert rendered(sure("phases"), kind) == wanted
        assert mpl.rcParams["font.size"] == 40


def test_unknown_intervals_are_no_intervals() -> None:
    alone = {"median": 2.0, "low": None, "high": None}
    rate = {"value": 2.0, "low": None, "high": None}
    whole = metrics(speedup_vs_ar=alone, mean_acceptance_length=rate, draft_efficiency=rate)
    for found in whole["acceptance_by_depth"] + list(whole["acceptance_by_source"].values()):
        found["rate"] = {"value": 0.5, "low": None, "high": None}
    drawn = draw(document(methods={"ar": method(plain()), "x": method(whole)}))
    assert set(drawn) == set(FIGURES)
    assert (2.0, 2.0) in marks(drawn["efficiency"])
