"""Commands, options and calls in the documentation exist."""

import re
from pathlib import Path

import pytest

from tests.documented_commands import commands, spans, wrong_calls, wrong_command, wrong_options

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
OLD = {"LOG.md"}
"""Pages that tell of commands as they were."""
ADDED = re.compile(r"\btimid\b|--also mine\b")
"""Parts that a page lets its reader write."""


@pytest.mark.parametrize("page", [p for p in PAGES if p.name not in OLD], ids=lambda p: p.name)
def test_the_commands_of_a_page_exist_with_their_options(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    lines = [line for line in commands(text) if not ADDED.search(line)]
    assert not [wrong for line in lines for wrong in wrong_command(line)]


@pytest.mark.parametrize(
    "line",
    [
        "draftwood generat x",
        "draftwood generate x --bugdet 3",
        "draftwood generate x --levels 3",  # a setting of another method
        "draftwood generate x --method gose",
        "draftwood bench --methods ar,goose:bugdet=3",
        "draftwood bench --methods ar,hf-lookups",
        "draftwood train eagle3 --nonsense",
    ],
)
def test_wrong_commands_are_found(line: str) -> None:
    assert wrong_command(line)


@pytest.mark.parametrize(
    "line",
    [
        "draftwood generate x --method eagle3 --levels 3",
        "draftwood generate x --also memory --memory.size 1000 | head",
        "draftwood bench --methods ar,goose:budget=3,hf-lookup:tokens=5  # as ever",
        "draftwood train eagle3 --help",
    ],
)
def test_right_commands_are_not(line: str) -> None:
    assert not wrong_command(line)


def ours() -> list[str]:
    """The code in the second column of the tables on coming from other tools."""
    lines = (DOCS / "coming-from.md").read_text(encoding="utf-8").splitlines()
    rows = [line.split("|") for line in lines if line.startswith("| ")]
    return [span for row in rows for span in spans(row[2])]


def test_every_option_of_ours_beside_those_of_other_tools_exists() -> None:
    options = [span for span in ours() if span.startswith("--")]
    assert len(options) > 60
    assert not [wrong for each in options for wrong in wrong_options(each)]


def test_every_call_of_ours_beside_arguments_of_transformers_exists() -> None:
    calls = [span for span in ours() if "draftwood." in span]
    assert len(calls) > 6
    assert not [wrong for each in calls for wrong in wrong_calls(each)]


def test_wrong_options_and_calls_are_found() -> None:
    assert wrong_options("--bugdet 3")
    assert wrong_options("--method pld --levels 3")
    assert not wrong_options("--levels 3")
    assert not wrong_options("--max-batch 4")
    assert wrong_calls("custom_generate=draftwood.pld(bugdet=3)")
    assert not wrong_calls("draftwood.pld(budget=3, context__lengths=(2, 1))")
