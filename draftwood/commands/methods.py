"""``draftwood methods``: what can be chosen, from which paper, with which settings."""

import click
from rich.console import Console
from rich.table import Table

from draftwood.methods import recipe, recipes
from draftwood.recipes import Recipe


@click.command()
@click.argument("name", required=False)
def methods(name: str | None) -> None:
    """List all methods, or the settings of method NAME."""
    console = Console()
    if name is None:
        console.print(_overview())
    else:
        chosen = recipe(name)
        console.print(f"{chosen.name}: {chosen.summary}\npaper: {chosen.paper}")
        console.print(_settings(chosen))


def _overview() -> Table:
    table = Table(box=None)
    for name in ("method", "what it does", "paper", "policy", "drafters", "verifier"):
        # A name that is cut cannot be typed.
        table.add_column(name, no_wrap=name in ("method", "policy", "verifier"))
    for each in recipes().values():
        drafters = ", ".join(each.drafters.values()) or "-"
        table.add_row(each.name, each.summary, each.paper, each.policy, drafters, each.verifier)
    return table


def _settings(chosen: Recipe) -> Table:
    table = Table("flag", "default", "meaning", box=None)
    for flag, setting in chosen.settings().items():
        table.add_row("--" + flag.replace("_", "-"), str(setting.default), setting.help)
    return table
