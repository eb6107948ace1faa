"""``python -m tests.methods_page`` writes the table of docs/methods.md from the recipes.

A test compares the two.
"""

from pathlib import Path

from draftwood.methods import recipes
from draftwood.methods.recipe import build
from draftwood.protocols import Recipe
from draftwood.protocols.recipe import DRAFT

PAGE = Path(__file__).parents[1] / "docs" / "methods.md"
BEGIN = "<!-- This table is written by python -m tests.methods_page. -->\n"
END = "<!-- The end of the table. -->\n"
HEAD = """\
| method | what it drafts | draft model | above temperature 0 | paper |
|---|---|---|---|---|
"""


def table() -> str:
    """The table that the page should have."""
    return HEAD + "".join(map(row, recipes().values()))


def row(recipe: Recipe) -> str:
    """A method's row."""
    needed = "optional" if DRAFT in recipe.optional else "no"
    cells = (
        f"`{recipe.name}`",
        recipe.summary,
        "yes" if recipe.needs_model else needed,
        "same tokens" if build(recipe).same_tokens(1.0) else "same distribution",
        recipe.paper,
    )
    return f"| {' | '.join(cells)} |\n"


def written(page: str) -> str:
    """The page with this table."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
