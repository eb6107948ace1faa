"""Sequoia's static tree: how it is filled and cut, what files are refused, the built-in one."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.errors import DraftwoodError
from draftwood.policies._fill import by_level
from draftwood.policies._rank_acceptance import DEFAULT_ACCEPTANCE
from draftwood.policies._static import RankPath, likeliest_paths, order, read_paths
from draftwood.policies.sequoia import Sequoia
from draftwood.protocols import Expand
from tests.factories.scripted_sources import Row, drafter, paths

TREE = {"acceptance": [0.6, 0.2, 0.1], "paths": [[1], [0], [0, 1], [0, 0], [1, 0], [2]], "by": "me"}


def plenty(token: int) -> Row:
    return [(11 * token + i, 0.5 / i) for i in range(1, 11)]


def write(folder: Path, document: Any) -> str:
    file = folder / "tree.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(file)


def test_a_file_is_filled_by_rank(tmp_path: Path) -> None:
    sources = drafter({0: [(10, 0.5), (20, 0.3), (30, 0.1)], 10: [(11, 0.9)], 20: [(21, 0.8)]})
    policy = Sequoia(tree=write(tmp_path, TREE))
    tree = sources.grow(policy)
    # (0, 1) is missing: token 10 has one successor only.
    assert paths(tree) == [(10,), (20,), (30,), (10, 11), (20, 21)]
    assert tree.route == "sequoia"
    assert tree.logq[-1] == pytest.approx(math.log(0.8))
    assert sources.expansions == [[0], [1, 2]]
    assert [query.k for query in sources.asked if isinstance(query, Expand)] == [3, 2]


def test_a_budget_keeps_the_likeliest_paths(tmp_path: Path) -> None:
    file = write(tmp_path, TREE)
    # Products: (0) .6, (0,0) .36, (1) .2, then (0,1) .12 and (1,0) .12 in this order, (2) .1.
    assert read_paths(file) == ((0,), (0, 0), (1,), (0, 1), (1, 0), (2,))
    sources = drafter(plenty)
    assert paths(sources.grow(Sequoia(budget=3, tree=file))) == [(1,), (2,), (1, 12)]
    assert paths(sources.grow(Sequoia(tree=file), budget=2)) == [(1,), (1, 12)]
    assert sources.grow(Sequoia(tree=file), room=1).drafted == 3
    assert sources.grow(Sequoia(tree=file)).drafted == 6


def test_of_equally_likely_paths_the_parent_comes_first(tmp_path: Path) -> None:
    sure = {"acceptance": [1.0, 1.0], "paths": [[0, 0, 0], [0, 0], [1], [0]]}
    file = write(tmp_path, sure)
    assert read_paths(file) == ((0,), (1,), (0, 0), (0, 0, 0))
    assert likeliest_paths((1.0, 1.0), 4) == ((0,), (1,), (0, 0), (0, 1))
    assert paths(drafter(plenty).grow(Sequoia(budget=1, tree=file))) == [(1,)]


def test_what_hangs_below_a_missing_child_is_left_out(tmp_path: Path) -> None:
    deep = {"acceptance": [0.5, 0.4], "paths": [[0], [1], [1, 0], [1, 0, 0]]}
    sources = drafter({0: [(5, 0.9)]})
    assert paths(sources.grow(Sequoia(tree=write(tmp_path, deep)))) == [(5,)]
    assert sources.expansions == [[0]]
    assert drafter({}).grow(Sequoia()).route == "plain"


def test_levels_are_sorted_by_rank() -> None:
    assert by_level(((0, 2), (0,), (0, 0), (1,))) == (((0,), (1,)), ((0, 0), (0, 2)))
    assert by_level(()) == ()


def product(path: RankPath, acceptance: tuple[float, ...]) -> float:
    return math.prod(acceptance[rank] for rank in path)


@given(
    st.lists(st.sampled_from([1.0, 0.7, 0.5, 0.25, 0.0]), min_size=1, max_size=4),
    st.integers(0, 25),
)
def test_likeliest_paths_are_the_likeliest_of_all(values: list[float], size: int) -> None:
    acceptance = tuple(sorted(values, reverse=True))
    found = likeliest_paths(acceptance, size)
    assert len(set(found)) == len(found) == size
    # Whatever could be added next is no likelier than what is there, and nothing is an orphan.
    borders = {(*path, rank) for path in {(), *found} for rank in range(len(acceptance))}
    worst = min((product(path, acceptance) for path in found), default=1.0)
    assert all(path[:-1] in {(), *found} for path in found)
    assert all(product(path, acceptance) <= worst + 1e-12 for path in borders - set(found))
    assert likeliest_paths(acceptance, size // 2) == found[: size // 2]
    ranks = range(len(acceptance))
    flat: list[RankPath] = [(rank,) for rank in ranks]
    flat += [(one, other) for one in ranks for other in ranks]
    flat.sort(key=lambda path: order(path, acceptance))
    assert likeliest_paths(acceptance, size, deepest=2) == tuple(flat[:size])


def test_the_tree_where_nothing_is_counted() -> None:
    sources = drafter(plenty)
    tree = sources.grow(Sequoia())
    assert DEFAULT_ACCEPTANCE[:3] == (0.6, 0.15, 0.6 / 9)
    assert (tree.drafted, tree.depth) == (59, 9)
    assert len(sources.expansions) == 9
    depths = tree.depths.tolist()
    assert depths == sorted(depths)
    assert depths.count(1) == 7  # .6 / 49 = .0122 is in, .6 / 64 = .0094 < .6 ** 9 = .0101 is not
    assert Sequoia(budget=300).paths[:59] == Sequoia().paths


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("{", "is not JSON"),
        ({"paths": [[0]]}, "acceptance is missing"),
        ({"acceptance": [0.5]}, "paths is missing"),
        ({"acceptance": [], "paths": [[0]]}, "need one entry or more"),
        ({"acceptance": [1.5], "paths": [[0]]}, r"acceptance\[0\]: expected a number from 0 to 1"),
        ({"acceptance": [0.5], "paths": []}, "need one entry or more"),
        ({"acceptance": [0.5], "paths": [[]]}, r"path \[\] must hold ranks from 0 to 0"),
        ({"acceptance": [0.5], "paths": [[1]]}, r"path \[1\] must hold ranks from 0 to 0"),
        ({"acceptance": [0.5], "paths": [[-1]]}, r"paths\[0\]\[0\]: expected an integer from 0 up"),
        ({"acceptance": [0.5], "paths": [[0], [0]]}, r"path \[0\] is listed twice"),
        ({"acceptance": [0.5], "paths": [[0, 0]]}, "is listed, but not its parent"),
    ],
)
def test_malformed_files_are_refused(tmp_path: Path, document: Any, said: str) -> None:
    file = write(tmp_path, document)
    with pytest.raises(DraftwoodError, match=said) as refusal:
        Sequoia(tree=file)
    assert file in str(refusal.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DraftwoodError, match=r"cannot read .*none\.json"):
        Sequoia(tree=str(tmp_path / "none.json"))
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(DraftwoodError, match="is not JSON"):
        Sequoia(tree=str(tmp_path / "binary.json"))
