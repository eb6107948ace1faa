"""The Python of the README, docs/python.md and docs/transformers.md runs as it stands."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

import draftwood

ROOT = Path(__file__).parents[1]


def blocks(page: str) -> list[str]:
    """The Python blocks of a page, in order."""
    return re.findall(
        r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE
    )


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


@pytest.fixture(scope="module")
def printed() -> list[str]:
    """What the blocks of docs/python.md print, run one after the other."""
    names: dict[str, Any] = {}
    return [run(code, names) for code in blocks("docs/python.md")]


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


def test_every_public_name_is_on_the_page_or_in_the_one_it_names() -> None:
    pages = "".join(
        (ROOT / page).read_text() for page in ("docs/python.md", "docs/transformers.md")
    )
    unnamed = {"Method", "Recipe", "TokenTree", "CustomGenerate", "method"}
    assert {name for name in draftwood.__all__ if name not in pages} <= unnamed
