"""The run that measures the recipes of the memory."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from draftwood import Engine, Request
from draftwood.errors import DraftwoodError
from draftwood.methods import method
from draftwood.methods.recipe import Method
from runs.smollm2.memory import main
from tests.factories.given_costs import drafting_pays

STORY = """The ship left the harbour before the sun had risen.
A cold wind blew from the east, and nobody sang.
Far behind them the lights of the town went out.
The captain stood beside the wheel with a letter in his hand.
He had read it twice, and he did not believe a word.
"We shall be there on Sunday," said the boy who brought his tea.
But the old man looked at the clouds and shook his head.
In the night it began to snow, and the ropes were white.
Two of the sailors wished that they had stayed at home.
By morning the mountains of the island could be seen.
"""


@pytest.fixture(autouse=True)
def given_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """``auto`` drafts as much on a busy machine as on a free one."""
    drafting_pays(monkeypatch)


def prompts(path: Path, *texts: str) -> str:
    rows = [{"id": f"{path.stem}{i}", "task": "story", "prompt": t} for i, t in enumerate(texts)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path.stem


def arguments(tmp_path: Path, *recipes: str) -> list[str]:
    folder = tmp_path / "code"
    folder.mkdir()
    # Every second one of the long files is continued.
    for name, word in {"a": "ship", "b": "boat", "c": "horse", "d": "crew"}.items():
        (folder / f"{name}.py").write_text(STORY.replace("ship", word), encoding="utf-8")
    given = {
        "--model": "embedded",
        "--base": "auto:shipped=off:neural=",
        "--directory": str(tmp_path),
        "--prompts": prompts(tmp_path / "asked.jsonl", "The ship left", "He said nothing"),
        "--unrelated": str(tmp_path / f"{prompts(tmp_path / 'b.jsonl', 'Three sisters')}.jsonl"),
        "--folder": str(folder),
        "--limit": "2",
        "--max-new-tokens": "24",
        "--truncate": "500",
        "--threads": "1",
    }
    return [*(word for pair in given.items() for word in pair), *recipes]


def measured(words: list[str]) -> dict[str, Any]:
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    found: dict[str, Any] = json.loads(done.stdout)["memory_recipes"]
    return found


def test_all_recipes_are_measured(tmp_path: Path) -> None:
    found = measured(arguments(tmp_path))
    assert {name: [*recipe["passes"]] for name, recipe in found.items()} == {
        "agent": ["turn1", "turn2", "turn3", "turn4", "unrelated"],
        "epochs": ["epoch1", "epoch2", "epoch3", "unrelated"],
        "repository": ["beginnings", "unrelated"],
    }
    assert [recipe["temperature"] for recipe in found.values()] == [0.0, 1.0, 0.0]
    for recipe in found.values():
        first, *_ = recipe["passes"].values()
        assert first["over_first_pass"] == {"without": 1.0, "with": 1.0}
        for each in recipe["passes"].values():
            assert each["without"]["accepted_from_memory"] == 0.0
            ratio = each["with_over_without"]["tokens_per_forward"]["value"]
            taus = (each[arm]["tokens_per_forward"] for arm in ("with", "without"))
            assert ratio == pytest.approx(next(taus) / next(taus))
    assert found["epochs"]["passes"]["epoch1"]["prompts"] == 2


def test_other_files_of_a_repository_are_remembered(tmp_path: Path) -> None:
    words = arguments(tmp_path, "repository", "--limit", "1")
    without = measured(words)["repository"]["passes"]["beginnings"]
    half = "".join(STORY.splitlines(keepends=True)[:5])
    [written] = Engine.load("embedded", "ar").generate([Request(half, 24)])
    (tmp_path / "code" / "short.py").write_text(half + written.text, encoding="utf-8")
    found = measured(words)["repository"]["passes"]["beginnings"]
    assert found["known_8grams"] > 0.5 > without["known_8grams"]
    assert found["with"]["accepted_from_memory"] > 0.1


def test_later_passes_are_copied_from_earlier_ones(tmp_path: Path) -> None:
    passes = measured([*arguments(tmp_path, "epochs"), "--temperature", "0"])["epochs"]["passes"]
    first, again = passes["epoch1"], passes["epoch2"]
    # All of it was there, and what repeats within an answer is known once.
    assert again["known_8grams"] == pytest.approx(1.0 - again["repeated_8grams"])
    assert again["known_8grams"] > first["known_8grams"]
    assert again["with"]["accepted_from_memory"] > 0.3
    ratio = again["with_over_without"]["tokens_per_forward"]
    assert ratio["value"] > 1.3
    assert again["repeated_8grams"] == first["repeated_8grams"]
    assert again["over_first_pass"]["without"] < again["over_first_pass"]["with"]


def test_an_answer_that_the_memory_changes_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Sampled drafts keep the distribution and not the tokens.
    def drawn(name: str, **settings: object) -> Method:
        return method("traversal" if "memory" in name else name)

    monkeypatch.setattr("runs.smollm2.memory.method", drawn)
    with pytest.raises(DraftwoodError, match="the memory changed the answer to asked0"):
        CliRunner().invoke(main, arguments(tmp_path, "epochs"), catch_exceptions=False)


def test_folders_that_do_not_suit_are_refused(tmp_path: Path) -> None:
    words = arguments(tmp_path, "repository")
    with pytest.raises(DraftwoodError, match="all files would be continued"):
        CliRunner().invoke(main, [*words, "--limit", "4"], catch_exceptions=False)
    (tmp_path / "empty").mkdir()
    words += ["--folder", str(tmp_path / "empty")]
    with pytest.raises(DraftwoodError, match="has no Python file of 500 to 4000 characters"):
        CliRunner().invoke(main, words, catch_exceptions=False)
