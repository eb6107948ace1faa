"""Parts are found by file name, recipes by the name that their policy's file says."""

import json
import subprocess
import sys
from collections import Counter
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from draftwood.errors import DraftwoodError
from draftwood.methods import method, names, recipe, recipes, registry
from draftwood.protocols import Recipe
from tests.factories.added_part import added_part


@pytest.mark.parametrize("kind", registry.KINDS)
def test_every_file_is_a_part(kind: registry.Kind) -> None:
    found = registry.names(kind)
    assert found
    for name in found:
        assert isinstance(registry.load(kind, name), type)


def test_unknown_part_is_refused_with_the_choices() -> None:
    with pytest.raises(DraftwoodError, match=r"'nope'.*spine"):
        registry.load("policies", "nope")


def test_the_names_read_from_the_policies_are_those_of_their_recipes() -> None:
    declared = [
        (each.name, policy)
        for policy in registry.parts("draftwood.policies")
        for each in registry.part("draftwood.policies", policy, "RECIPES")
    ]
    assert Counter(registry.recipe_files().items()) == Counter(declared)
    assert len({name for name, _ in declared}) == len(declared)
    assert all(recipe(name).policy == policy for name, policy in declared)


@pytest.mark.parametrize("call", ["Recipe('a', x)", 'Recipe(name="a")', 'protocols.Recipe("a")'])
def test_a_recipes_name_is_read_however_it_is_written(call: str, tmp_path: Path) -> None:
    with added_part(tmp_path, "policies", "written", f"RECIPES = ({call},)"):
        assert registry.recipe_files()["a"] == "written"


@pytest.mark.parametrize("call", ["Recipe(NAME)", "Recipe(name=f'{a}')", "Recipe()"])
def test_a_recipe_whose_name_is_no_text_is_refused(call: str, tmp_path: Path) -> None:
    said = r"written\.py, line 2: .* write it as text"
    with (
        added_part(tmp_path, "policies", "written", f"\nRECIPES = ({call},)"),
        pytest.raises(DraftwoodError, match=said),
    ):
        names()


LOADED = """
import json, sys
from draftwood.methods import check, method
made = [method(name) for name in sys.argv[1:]]
parts = [name.split(".")[2] for name in sys.modules if name.startswith("draftwood.policies.")]
print(json.dumps([name for name in parts if not name.startswith("_")]))
"""


def test_a_method_imports_no_policy_but_its_own() -> None:
    out = subprocess.run(
        [sys.executable, "-c", LOADED, "goose", "pld"], capture_output=True, text=True, check=True
    )
    assert sorted(json.loads(out.stdout)) == ["chain", "spine"]


MINE = Recipe("mine", "a long chain", "-", "chain", {"context": "context"})


def test_another_distribution_offers_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = EntryPoint("mine", f"{__name__}:MINE", "draftwood.methods")
    offered = {"methods": {"mine": theirs}}
    monkeypatch.setattr(registry, "third_party", lambda group: offered.get(group, {}))
    assert recipes()["mine"] is MINE
    assert method("mine:budget=5").policy.budget == 5
    monkeypatch.undo()
    recipe.cache_clear()
    with pytest.raises(DraftwoodError, match="unknown method 'mine'"):
        recipe("mine")
