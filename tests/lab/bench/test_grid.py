"""What a search tries: declared by the parts and the recipes, and every one of it can be built."""

import pytest

from draftwood.lab.bench import makers
from draftwood.lab.bench.grid import contenders, grid, searchable
from draftwood.methods import method, recipes

SEARCHED = [name for name in recipes() if grid(name)]


def made(name: str) -> dict[str, tuple[str, ...]]:
    return {key: ("a.json", "b.json") for key, each in grid(name).items() if each.searched_by}


@pytest.mark.parametrize("name", [n for n in SEARCHED if not made(n)])
def test_every_contender_can_be_built_and_the_published_method_is_first(name: str) -> None:
    texts = contenders(name, {})
    assert texts[0] == name
    built = [method(text) for text in texts]
    assert len(built) >= 3
    assert len(set(map(repr, built))) == len(built), "two texts name one setting"


def test_a_recipe_has_the_last_word() -> None:
    assert list(grid("sd")) == ["budget"]
    assert contenders("sd", {}) == ["sd", *(f"sd:budget={k}" for k in (1, 2, 3, 8))]
    assert set(grid("fixed-tree")) == {"budget", "depth", "breadth"}
    assert grid("ar") == {} == grid("auto")


def test_values_of_a_search_of_its_own_are_part_of_the_method_as_published() -> None:
    (key,) = (key for key, each in grid("sequoia").items() if each.searched_by)
    texts = contenders("sequoia", {key: ["fast.json", "large.json"]})
    assert texts[0] == f"sequoia:{key}=fast.json"
    assert not any("=fast" not in text and "=large" not in text for text in texts)
    assert f"sequoia:budget=16:{key}=large.json" in texts


def test_every_named_search_is_there() -> None:
    for name in SEARCHED:
        for each in grid(name).values():
            if each.searched_by:
                assert hasattr(makers, "make")
                __import__(f"{makers.__name__}.{each.searched_by}")


def test_methods_with_a_model_are_searched_if_it_is_given() -> None:
    assert {"goose", "pld", "tr"} <= set(searchable([]))
    assert not {"sd", "talon", "eagle3", "auto", "ar"} & set(searchable([]))
    assert {"sd", "talon", "sequoia"} <= set(searchable(["draft"]))
    assert not {"eagle3", "pard"} & set(searchable(["draft"]))
    assert "eagle3" in searchable(["head"])
    assert "mtp" not in searchable(["head"]), "few targets have such layers"
