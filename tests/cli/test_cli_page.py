"""docs/cli.md has the help of all commands."""

import click

from draftwood import cli
from tests.cli_page import PAGE, meaning, written


def test_the_page_has_the_help_of_the_commands() -> None:
    assert PAGE.read_text(encoding="utf-8") == written(), "run python -m tests.cli_page"


def test_every_command_has_a_section() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for entries in cli.SECTIONS.values():
        for name in entries:
            assert f"\n### `draftwood {name}`\n" in page


def test_nothing_of_the_machine_is_on_the_page() -> None:
    option = click.Option(["--threads"], type=click.IntRange(1, 8), help="Threads. [default: all]")
    assert meaning(option, click.Context(click.Command("x"))) == "Threads. By default all."
