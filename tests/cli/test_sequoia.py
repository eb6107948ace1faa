"""``draftwood sequoia`` from end to end."""

import json
from pathlib import Path

import pytest

from draftwood.engine.engine import Engine
from draftwood.lab.theory.sequoia_tree import RankTree
from tests.factories.command_line import refused, run


@pytest.fixture
def argv(checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr("draftwood.lab.bench.ranks._SECONDS", 0.05)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "abc abc abc "}\n')
    argv = ["sequoia", str(tmp_path / "tree.json"), "--prompts", str(prompts)]
    argv += ["--model", checkpoint, "--draft", checkpoint, "--max-new-tokens", "6"]
    return [*argv, "--ranks", "2", "--nodes", "3"]


def test_steps_are_timed_in_a_context_that_fits_the_model(argv: list[str], tmp_path: Path) -> None:
    """The default does not, and is known not to once the prompts have been decoded."""
    out = tmp_path / "tree.json"
    for further, said in (([], True), (["--context", "300"], True), (["--context", "40"], False)):
        code, _, err = run(*argv, "--largest", *further)
        assert code == 0, err
        assert ("steps are timed at 252 cached tokens" in err) == said
        assert len(json.loads(out.read_text())["target_ms"]) == 4
        out.unlink()


def test_no_tree_is_written_where_none_is_faster_than_plain_decoding(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "draftwood.lab.bench.makers.rank_trees.fastest_tree", lambda *_: RankTree((), 1.0)
    )
    code, _, err = run(*argv)
    assert (code, "no tree is faster than plain decoding here" in err) == (2, True)
    assert not (tmp_path / "tree.json").exists()
    assert run(*argv, "--largest")[0] == 0
    assert json.loads((tmp_path / "tree.json").read_text())["paths"]


def test_a_tree_that_does_not_fit_is_refused_before_the_prompts_are_decoded(
    argv: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "stream", None)
    assert "a tree of 5000 nodes does not fit the model's context of 256" in refused(
        *argv, "--nodes", "5000"
    )
