"""The policy of docs/add-a-part.md is one file: put beside the others, it is a method by name."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import draftwood.policies
from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.lab.lossless.exact import check_exact
from draftwood.methods import method, recipe, registry
from tests.factories.markov_target import FakeHost, MarkovTarget
from tests.test_docs_python import blocks


@pytest.fixture
def timid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    [code] = blocks("docs/add-a-part.md")
    (tmp_path / "timid.py").write_text(code, encoding="utf-8")
    places = [*draftwood.policies.__path__, str(tmp_path)]
    monkeypatch.setattr(draftwood.policies, "__path__", places)
    registry.recipe_files.cache_clear()
    yield
    sys.modules.pop("draftwood.policies.timid", None)
    registry.recipe_files.cache_clear()
    recipe.cache_clear()


@pytest.mark.usefixtures("timid")
def test_the_policy_of_the_page_runs_by_name_and_is_lossless() -> None:
    target = MarkovTarget()
    made = method("timid")
    engine = Engine(target, made, host=FakeHost(target.info))
    [completion] = engine.generate([Request([1, 5, 2, 7, 1, 5, 2], 30)])
    assert completion.checked().tokens == target.greedy([1, 5, 2, 7, 1, 5, 2], 30)
    assert check_exact("timid", made.policy, made.verifier).passed
    assert method("timid:budget=0").policy.budget == 0
