"""Static shapes: how they are spelt, cut, and put into the order in which they are drawn."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.errors import DraftwoodError
from draftwood.policies._static import SPARSE, RankPath, layout, shape_paths, uniform_paths


def test_a_uniform_shape_level_by_level() -> None:
    assert shape_paths("2x1", 9) == ((0,), (1,), (0, 0), (1, 0))
    assert shape_paths("3", 9) == ((0,), (1,), (2,))
    assert shape_paths("2x1", 3) == ((0,), (1,), (0, 0))
    assert shape_paths("2x1", 0) == ()
    assert len(uniform_paths([9] * 9, 62)) == 62
    assert len(shape_paths("2x2x2x2x2", 10**6)) == 62


def test_the_sparse_tree() -> None:
    assert shape_paths("sparse", 0) == SPARSE
    assert len(SPARSE) == len(set(SPARSE)) == 25
    assert all(path[:-1] in {(), *SPARSE} for path in SPARSE)
    assert layout(SPARSE, 59, "first") == (
        (4,),
        (3, 2, 2, 1),
        (3, 2, 2, 1, 0, 0, 0, 0),
        (3, 0, 0, 0, 0, 0, 0, 0),
        (2, 0, 0),
    )


def test_the_deepest_subtree_comes_first_and_ties_keep_their_order() -> None:
    paths: tuple[RankPath, ...] = ((0,), (1,), (2,), (3,), (1, 0), (2, 0), (2, 1), (2, 0, 0))
    # heights 0, 1, 2, 0: the third child, then the second, then the first and the fourth
    assert layout(paths, 59, "first") == ((4,), (2, 1, 0, 0), (1, 0, 0))
    assert layout(paths, 59, "last") == ((4,), (1, 0, 0, 2), (0, 0, 1))


def test_a_shape_is_cut_breadth_first_before_the_deepest_goes_last() -> None:
    assert layout(SPARSE, 3, "first") == ((3,),)
    assert layout(SPARSE, 6, "first") == ((4,), (2, 0, 0, 0))
    assert layout(SPARSE, 6, "last") == ((4,), (0, 0, 0, 2))
    assert layout(SPARSE, 21, "first")[2:] == ((3, 2, 2, 1, 0, 0, 0, 0), (1, *[0] * 7))
    assert layout(SPARSE, 0, "first") == layout(SPARSE, -1, "last") == ()


@given(
    st.sampled_from([SPARSE, uniform_paths([2] * 5, 62), uniform_paths([3, 1, 2], 99)]),
    st.integers(0, 70),
    st.sampled_from(["first", "last"]),
)
def test_a_cut_shape_has_as_many_nodes_as_it_can(
    paths: tuple[RankPath, ...], budget: int, deepest: Any
) -> None:
    levels = layout(paths, budget, deepest)
    assert sum(map(sum, levels)) == min(budget, len(paths))
    assert [len(level) for level in levels] == [1, *map(sum, levels)][: len(levels)]
    full = [sum(level) for level in layout(paths, len(paths), deepest)]
    assert [sum(level) for level in levels][:-1] == full[: max(0, len(levels) - 1)]


def test_a_file_gives_its_paths(tmp_path: Path) -> None:
    file = tmp_path / "tree.json"
    file.write_text('{"acceptance": [0.5, 0.2], "paths": [[1], [0], [1, 0]]}')
    assert shape_paths(str(file), 1) == ((0,), (1,), (1, 0))
    assert layout(shape_paths(str(file), 1), 9, "first") == ((2,), (1, 0))


@pytest.mark.parametrize("wrong", ["2x0", "", "x2", "2x", "2 x 2", "-1", "none.json"])
def test_other_texts_are_refused(wrong: str) -> None:
    with pytest.raises(DraftwoodError, match=f'shape is "{wrong}"; give children per level'):
        shape_paths(wrong, 9)


def test_a_file_that_holds_no_tree_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tree.json"
    file.write_text('{"acceptance": [0.5], "paths": [[1]]}')
    with pytest.raises(DraftwoodError, match=r"path \[1\] must hold ranks"):
        shape_paths(str(file), 9)
