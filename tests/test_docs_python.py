"""The Python of the README and of pages of docs runs as it stands.

So do the commands of docs/memory.md.
"""

import contextlib
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import draftwood
from draftwood import Engine, Request
from tests.factories.command_line import output_of
from tests.factories.given_costs import drafting_pays

ROOT = Path(__file__).parents[1]


def blocks(page: str, language: str = "python") -> list[str]:
    """The blocks of a page in a language, in order."""
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def run(code: str, names: dict[str, Any]) -> str:
    """What a block prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "page", "exec"), names)
    return out.getvalue()


def test_the_readme_runs_and_prints_text() -> None:
    [code] = blocks("README.md")
    text = run(code, {})
    assert text.startswith("The ship left the harbour. The ship")
    assert len(text) > 100


def test_the_quick_start_is_the_readmes() -> None:
    [code] = blocks("docs/index.md")
    assert [code] == blocks("README.md")


def test_the_page_on_what_lossless_means_prints_what_it_says() -> None:
    names: dict[str, Any] = {}
    code = blocks("docs/lossless.md")
    said = [re.findall(r"^print\(.*# (\w+)$", each, re.MULTILINE) for each in code]
    assert [run(each, names).split() for each in code] == said
    assert sum(map(len, said)) == 3


@pytest.fixture(scope="module")
def printed() -> list[str]:
    """What the blocks of docs/python.md print, run one after the other."""
    names: dict[str, Any] = {}
    return [run(code, names) for code in blocks("docs/python.md")]


def test_the_page_on_structured_output_runs() -> None:
    pytest.importorskip("llguidance")
    [code] = blocks("docs/structured.md")
    found = json.loads(run(code, {}))
    assert [*found] == ["name", "age"]


def test_the_page_runs(printed: list[str]) -> None:
    text = "\n".join(printed)
    assert len(printed) >= 9
    assert "The ship left the harbour. The ship" in text
    assert "tokens a step" in text
    assert re.search(r"^(length|eos)$", text, re.MULTILINE)
    assert re.search(r"^cancelled \d+$", text, re.MULTILINE)
    assert "budget='many': expected int" in text


def test_generate_and_the_engine_print_the_same(printed: list[str]) -> None:
    prompt = "The ship left the harbour. The ship"
    from_generate = next(out for out in printed if out.startswith(prompt))
    continued = from_generate.removeprefix(prompt).rstrip("\n")
    from_engine = next(out for out in printed if "tokens a step" in out)
    assert from_engine.startswith(continued)


def test_the_page_on_transformers_runs() -> None:
    names: dict[str, Any] = {}
    printed = [run(code, names) for code in blocks("docs/transformers.md")]
    decode = names["tokenizer"].decode
    plain = names["model"].generate(**names["inputs"], max_new_tokens=64)
    text = decode(plain[0, names["inputs"]["input_ids"].shape[1] :])
    assert printed[1].strip() == text.strip()
    assert re.match(r"[0-9.]+ tokens per call of the model", printed[-1])
    assert text.strip() in printed[-1]


@pytest.fixture
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With the files that docs/memory.md names."""
    monkeypatch.chdir(tmp_path)
    Path("src").mkdir()
    code = "def quicksort(values):"
    [written] = Engine.load("embedded", "ar").generate([Request(code, 32)])
    Path("src/sort.py").write_text(code + written.text, encoding="utf-8")
    Path("prompt.txt").write_text("The ship left the harbour. The ship", encoding="utf-8")
    row = {"id": "one", "task": "story", "prompt": "The ship left the harbour."}
    Path("prompts.jsonl").write_text(json.dumps(row), encoding="utf-8")
    return tmp_path


def test_the_page_on_the_memory_runs(
    working_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafting_pays(monkeypatch)
    names: dict[str, Any] = {}
    printed = [run(code, names) for code in blocks("docs/memory.md")]
    assert len(printed) == 5
    turns = re.findall(r"^([0-9.]+) tokens a forward, (\d+) from the memory$", printed[1], re.M)
    assert [int(copied) > 0 for _, copied in turns][::2] == [False, True]
    assert float(turns[2][0]) > float(turns[0][0])
    texts = [json.loads(line) for line in Path("rollout.memory").read_text().splitlines()[1:]]
    assert len(texts) >= 4
    assert names["done"].tally.accepted_by_source["memory"] > 0


def test_the_page_on_rollouts_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    drafting_pays(monkeypatch)
    [code] = blocks("docs/rl.md")
    names: dict[str, Any] = {}
    found = [int(n) for n in re.findall(r"^(\d+) drafted", run(code, names), re.MULTILINE)]
    assert len(found) == 2
    texts = {done.tokens for done in names["answers"][: names["group"]]}
    assert len(texts) == names["group"], "answers of a group differ"


def test_the_commands_of_the_page_on_the_memory_run(working_directory: Path) -> None:
    lines = "".join(blocks("docs/memory.md", "bash")).splitlines()
    assert len(lines) == 8
    for line in lines:
        name, *arguments = shlex.split(line)
        assert name == "draftwood"
        assert output_of(*arguments, "--max-new-tokens", "8")
    assert Path("agent.memory").read_bytes().count(b"\n") >= 3


def test_every_public_name_is_on_the_page_or_in_the_one_it_names() -> None:
    pages = "".join(
        (ROOT / page).read_text() for page in ("docs/python.md", "docs/transformers.md")
    )
    unnamed = {"Method", "Recipe", "TokenTree", "CustomGenerate", "method"}
    assert {name for name in draftwood.__all__ if name not in pages} <= unnamed
